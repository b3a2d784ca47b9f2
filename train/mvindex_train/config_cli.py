"""A run's settings put together, from preset, budget, file and flags; and shown, each value with its origin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mvindex.errors import ConfigError
from mvindex_train.config import TrainConfig
from mvindex_train.presets import (
    PRESETS,
    Budget,
    Preset,
    find_preset,
    parse_budget,
    preset,
    small_budget,
    value_at,
)
from mvindex_train.tables import merge, read_toml, write_toml

SMALL_LABEL = "small budget: not the paper's setting"
_OWN_SMALL_LABEL = "small budget: not the preset's full setting"
# They decide what a run is made on, not how an encoder is trained.
_OF_THE_RUN = (
    "data.train", "data.passages", "data.format", "data.dev", "data.negatives", "optimiser.seed", "preset", "budget"
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRequest:
    """What a user gave: a TOML file, names of preset and budget, and texts such as "optimiser.epochs=3"."""

    file: Path | None = None
    preset: str | None = None
    budget: str | None = None
    overrides: Sequence[str] = ()


def load_config(request: ConfigRequest) -> TrainConfig:
    """The settings: a preset's at its budget, under the file's values, under the overrides.

    Preset and budget of the request come before those that the file names; without either the defaults of
    TrainConfig stand in for a preset. Raises ConfigError naming file, setting and what was wanted.
    """
    tables = read_toml(request.file) if request.file else {}
    place = str(request.file or "settings")
    start = _start(request.preset or _named(tables, "preset", place), request.budget or _named(tables, "budget", place))
    rest = {name: value for name, value in tables.items() if name not in ("preset", "budget")}
    return merge(start, rest, place).with_overrides(request.overrides)


def describe(config: TrainConfig) -> str:
    """The settings as TOML that reads back as the same, behind each value where it comes from: for --show-config."""
    comments = {name: origin(config, name) for name in _names(config)}
    return f"# {label(config)}\n" + write_toml(config.as_dict(), comments)


def label(config: TrainConfig) -> str:
    """What to know of the settings beside a result: the method, and all that is not as in its paper."""
    found = PRESETS.get(config.preset or "")
    if found is None:
        return "settings of no preset"
    parts = [f"preset {found.name}"]
    if config.budget == Budget.SMALL.value:
        parts.append(SMALL_LABEL if found.paper else _OWN_SMALL_LABEL)
    if found.paper and config.encoder.base != found.base:
        parts.append(f"base {config.encoder.base} in place of {found.base}")
    given = [name for name in changed_names(config) if name != "encoder.base"]
    if given:
        parts.append(f"changed: {', '.join(given)}")
    return "; ".join(parts)


def changed_names(config: TrainConfig) -> list[str]:
    """The settings that differ from the preset's at its budget, or from the defaults; not those of data and seed."""
    start = _start(config.preset, config.budget)
    return [name for name in _names(config) if name not in _OF_THE_RUN and _differs(config, start, name)]


def origin(config: TrainConfig, name: str) -> str:
    """Where the value of the setting "table.field" or "field" comes from: paper, our choice, small budget or given."""
    found = PRESETS.get(config.preset or "")
    start = _start(config.preset, config.budget)
    if name in ("preset", "budget"):
        return "given" if value_at(config, name) != value_at(TrainConfig(), name) else "default"
    if _differs(config, start, name):
        replaced = f" (instead of {_show(value_at(start, name))})" if name not in _OF_THE_RUN else ""
        return "given" + replaced + _base_note(found, config, name)
    return (found and _preset_origin(found, config, name)) or "default"


def _preset_origin(found: Preset, config: TrainConfig, name: str) -> str:
    if name == "encoder.base" and found.paper:
        return f"our replacement of the paper's base {found.base}"
    if config.budget == Budget.SMALL.value:
        for change in small_budget(preset(found.name)):
            if change.name == name:
                source = found.values.get(name, (None, "default"))[1]
                return f"small budget: {_show(change.full)} -> {_show(change.small)}, {change.reason} (was: {source})"
    return found.values.get(name, (None, ""))[1]


def _base_note(found: Preset | None, config: TrainConfig, name: str) -> str:
    is_papers = found is not None and name == "encoder.base" and config.encoder.base == found.base
    return ", the paper's base" if is_papers else ""


def _start(preset_name: str | None, budget: str | None) -> TrainConfig:
    parsed = parse_budget(budget) if budget is not None else Budget.FULL
    if preset_name is not None:
        return preset(find_preset(preset_name).name, parsed)
    if parsed is Budget.SMALL:
        raise ConfigError("budget is 'small' without a preset; wanted a preset, whose settings it makes smaller")
    return TrainConfig()


def _named(tables: dict[str, Any], name: str, place: str) -> str | None:
    value = tables.get(name)
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{place}: {name} is {value!r:.80}; wanted a text")
    return None if value == "none" else value


def _names(config: TrainConfig) -> list[str]:
    """The names of all settings, "field" or "table.field"."""
    tables = {name: value if isinstance(value, dict) else None for name, value in config.as_dict().items()}
    plain = [name for name, fields in tables.items() if fields is None]
    return plain + [f"{table}.{field}" for table, fields in tables.items() for field in fields or ()]


def _differs(config: TrainConfig, start: TrainConfig, name: str) -> bool:
    return bool(value_at(config, name) != value_at(start, name))


def _show(value: object) -> str:
    return "none" if value is None else str(value)

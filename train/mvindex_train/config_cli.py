"""The settings of a run from preset, budget, file and flags, and their display with the source of each value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mvindex.errors import ConfigError
from mvindex_train.config import TrainConfig
from mvindex_train.fields import merge, read_toml, write_toml
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

SMALL_LABEL = "small budget: not the paper's setting"
_OWN_SMALL_LABEL = "small budget: not the preset's full setting"
# They select data, seed and preset, not how an encoder is trained.
_RUN_SETTINGS = (
    "data.train", "data.passages", "data.format", "data.dev", "data.negatives", "optimiser.seed", "preset", "budget"
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRequest:
    """The input of a user: a TOML file, names of preset and budget, and overrides such as "optimiser.epochs=3"."""

    file: Path | None = None
    preset: str | None = None
    budget: str | None = None
    overrides: Sequence[str] = ()


def load_config(request: ConfigRequest) -> TrainConfig:
    """Return the settings of a preset at its budget, overridden by the file, then by the overrides.

    Preset and budget of the request override those of the file; without a preset the defaults of TrainConfig apply.
    Raises ConfigError with the file, the setting and the expected value.
    """
    tables = read_toml(request.file) if request.file else {}
    place = str(request.file or "settings")
    start = _start(request.preset or _named(tables, "preset", place), request.budget or _named(tables, "budget", place))
    rest = {name: value for name, value in tables.items() if name not in ("preset", "budget")}
    return merge(start, rest, place).with_overrides(request.overrides)


def describe(config: TrainConfig) -> str:
    """Return the settings as TOML with the source of each value as a comment, for --show-config."""
    comments = {name: source_of(config, name) for name in _names(config)}
    return f"# {label(config)}\n" + write_toml(config.as_dict(), comments)


def label(config: TrainConfig) -> str:
    """Return the label of a result: the method, and every difference from its paper."""
    chosen = PRESETS.get(config.preset or "")
    if chosen is None:
        return "settings of no preset"
    parts = [f"preset {chosen.name}"]
    if config.budget == Budget.SMALL.value:
        parts.append(SMALL_LABEL if chosen.paper else _OWN_SMALL_LABEL)
    if chosen.paper and config.encoder.base != chosen.base:
        parts.append(f"base {config.encoder.base} instead of {chosen.base}")
    changed = [name for name in list_changed_names(config) if name != "encoder.base"]
    if changed:
        parts.append(f"changed: {', '.join(changed)}")
    return "; ".join(parts)


def list_changed_names(config: TrainConfig) -> list[str]:
    """Return the settings that differ from the preset at its budget, or the defaults; not those of data and seed."""
    start = _start(config.preset, config.budget)
    return [name for name in _names(config) if name not in _RUN_SETTINGS and _differs(config, start, name)]


def source_of(config: TrainConfig, name: str) -> str:
    """Return the source of the setting "table.field" or "field": paper, our choice, small budget or given."""
    chosen = PRESETS.get(config.preset or "")
    start = _start(config.preset, config.budget)
    if name in ("preset", "budget"):
        return "given" if value_at(config, name) != value_at(TrainConfig(), name) else "default"
    if _differs(config, start, name):
        replaced = f" (instead of {_show(value_at(start, name))})" if name not in _RUN_SETTINGS else ""
        return "given" + replaced + _base_note(chosen, config, name)
    return (chosen and _preset_source(chosen, config, name)) or "default"


def _preset_source(chosen: Preset, config: TrainConfig, name: str) -> str:
    if name == "encoder.base" and chosen.paper:
        return f"our replacement of the paper's base {chosen.base}"
    if config.budget == Budget.SMALL.value:
        for change in small_budget(preset(chosen.name)):
            if change.name == name:
                source = chosen.values.get(name, (None, "default"))[1]
                return f"small budget: {_show(change.full)} -> {_show(change.small)}, {change.reason} (was: {source})"
    return chosen.values.get(name, (None, ""))[1]


def _base_note(chosen: Preset | None, config: TrainConfig, name: str) -> str:
    is_papers = chosen is not None and name == "encoder.base" and config.encoder.base == chosen.base
    return ", the paper's base" if is_papers else ""


def _start(preset_name: str | None, budget: str | None) -> TrainConfig:
    parsed = parse_budget(budget) if budget is not None else Budget.FULL
    if preset_name is not None:
        return preset(find_preset(preset_name).name, parsed)
    if parsed is Budget.SMALL:
        raise ConfigError("budget: expected a preset for the budget 'small', got none")
    return TrainConfig()


def _named(tables: dict[str, Any], name: str, place: str) -> str | None:
    value = tables.get(name)
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{place}: {name}: expected a string, got {value!r:.80}")
    return None if value == "none" else value


def _names(config: TrainConfig) -> list[str]:
    """Return the names of all settings, "field" or "table.field"."""
    tables = {name: value if isinstance(value, dict) else None for name, value in config.as_dict().items()}
    plain = [name for name, fields in tables.items() if fields is None]
    return plain + [f"{table}.{field}" for table, fields in tables.items() for field in fields or ()]


def _differs(config: TrainConfig, start: TrainConfig, name: str) -> bool:
    return bool(value_at(config, name) != value_at(start, name))


def _show(value: object) -> str:
    return "none" if value is None else str(value)

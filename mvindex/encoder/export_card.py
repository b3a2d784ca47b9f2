"""Write the model card of an exported encoder; read licence and base from other cards."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mvindex.encoder.checkpoint import Checkpoint, Settings
from mvindex.encoder.checkpoint.hub import PACKAGED, PACKAGED_HUB_ID
from mvindex.encoder.checkpoint.settings import read_json_object

_LICENCE = re.compile(r"^license:[ \t]*['\"]?([\w.+-]+)['\"]?[ \t]*$", flags=re.MULTILINE)
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_MAX_CARD_BYTES = 1 << 20


def find_licence(checkpoint: Checkpoint) -> str | None:
    """Return the licence that the checkpoint's card names, else its base's; None where neither does."""
    folders = [Path(checkpoint.source), checkpoint.folder]
    if checkpoint.base is not None:
        folders += [Path(checkpoint.base.source), checkpoint.base.folder]
    return next((found for folder in folders if (found := _licence_of(folder / "README.md"))), None)


def _licence_of(card: Path) -> str | None:
    """Return the licence in the metadata at the head of a card, as model hubs write it."""
    if not card.is_file():
        return None
    with open(card, encoding="utf-8", errors="replace") as file:
        text = file.read(_MAX_CARD_BYTES)
    if not text.startswith("---\n"):
        return None
    found = _LICENCE.search(text[4:].partition("\n---")[0])
    return found[1] if found else None


def find_base(checkpoint: Checkpoint) -> str | None:
    """Return the hub id of the model that the checkpoint is, or was trained from; None where it is unknown."""
    names = [checkpoint.source]
    if checkpoint.base is not None:
        names = [checkpoint.base.source]
    elif (checkpoint.folder / "training.json").is_file():
        names = [_trained_from(read_json_object(checkpoint.folder / "training.json"))]
    name = PACKAGED_HUB_ID if names[0] == PACKAGED else names[0].partition("@")[0]
    return name if _HUB_ID.fullmatch(name) and not Path(name).exists() else None


def _trained_from(record: dict[str, Any]) -> str:
    """Return the base that the record of a training names."""
    config = record.get("config")
    encoder = config.get("encoder") if isinstance(config, dict) else None
    return str(encoder.get("base")) if isinstance(encoder, dict) else ""


def write_card(settings: Settings, licence: str | None, base: str | None) -> str:
    """Return README.md of the exported folder, with the metadata that model hubs read."""
    metadata = {
        "library_name": "sentence-transformers",
        "pipeline_tag": "sentence-similarity",
        "license": licence,
        "base_model": base,
    }
    similarity = f"Vectors are compared by {'their cosine' if settings.normalise else 'inner product'}"
    shorter, longer = sorted((settings.document_length, settings.query_length))
    window = (
        f"{longer} tokens"
        if shorter == longer
        else f"{settings.document_length} tokens, questions {settings.query_length}"
    )
    return "\n".join(
        [
            "---",
            *(f"{name}: {value}" for name, value in metadata.items() if value),
            "tags:",
            "- sentence-transformers",
            "- mvindex",
            "---",
            "",
            "# Encoder exported by mvindex",
            "",
            f"- Family: `{settings.family.name}`, one vector a document." + _label(settings),
            f"- Base: {f'`{base}`' if base else 'not known'}.",
            f"- Licence: {licence or 'not known; that of the base goes with these weights'}.",
            f"- Pooling: {settings.pooling.value}. {similarity}. Longer texts are cut at {window}.",
            "",
            "```python",
            "from sentence_transformers import SentenceTransformer",
            "",
            'model = SentenceTransformer("DIR")',
            'model.encode_document(["Oil reached $12 a barrel."]) @ model.encode_query("how dear was oil?")',
            "```",
            "",
            "or `mvindex ingest corpus.tsv --encoder DIR`, which reads a longer text in several windows.",
            "",
        ]
    )


def _label(settings: Settings) -> str:
    return f" Training: {settings.label}." if settings.label else ""

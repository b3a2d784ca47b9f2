"""Check, before a tokenizer is used, that it does not make a text many times longer."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mvindex.encoder.checkpoint.settings import read_json_object
from mvindex.errors import CheckpointError

# Unicode's own forms make at most 18 characters of one; what trained models have beside them doubles a text.
MOST_GROWTH = 64
_SIZE_BYTES = 4


def check_tokenizer_file(folder: Path) -> None:
    """Raise CheckpointError where the folder's tokenizer.json may make a text more than MOST_GROWTH times longer.

    It is read before the tokenizer is loaded: that normalizes the added tokens.
    """
    path = folder / "tokenizer.json"
    if path.is_file():
        _check(read_json_object(path).get("normalizer"), str(path))


def check_normalizer(tokenizer: Any, place: str) -> None:
    """Raise CheckpointError where the normalizer of a loaded tokenizer may make a text that much longer."""
    if tokenizer.normalizer is not None:
        _check(json.loads(tokenizer.normalizer.__getstate__()), place)


def _check(normalizer: Any, place: str) -> None:
    try:
        growth = _growth(normalizer)
    except (TypeError, KeyError, ValueError, RecursionError, binascii.Error) as err:
        raise CheckpointError(
            f"{place}: expected a normalizer of the tokenizers library, got another: {err!r}"
        ) from err
    if growth > MOST_GROWTH:
        raise CheckpointError(
            f"{place}: the normalizer may make a text {growth:.6g} times longer; expected at most {MOST_GROWTH} times"
        )


def _growth(normalizer: Any) -> float:
    """Return how many characters a normalizer makes of one at most, apart from those that Unicode's forms make."""
    if not isinstance(normalizer, Mapping):
        return 1.0
    kind = normalizer["type"]
    if kind == "Sequence":
        product = 1.0
        for part in normalizer["normalizers"]:
            product *= _growth(part)
        return product
    if kind == "Replace":
        pattern = normalizer["pattern"]
        # A regular expression may match between any two characters.
        made = (
            len(normalizer["content"]) / len(pattern["String"])
            if pattern.get("String")
            else 1 + len(normalizer["content"])
        )
        return max(1.0, made)
    if kind == "Precompiled" and normalizer["precompiled_charsmap"]:
        return max(1.0, _longest_entry(base64.b64decode(normalizer["precompiled_charsmap"])))
    return 1.0


def _longest_entry(charsmap: bytes) -> int:
    """Return the length of the longest text in SentencePiece's map of characters: a trie, and texts that end in NUL."""
    trie_bytes = int.from_bytes(charsmap[:_SIZE_BYTES], "little")
    texts = charsmap[_SIZE_BYTES + trie_bytes :].split(b"\0")
    return max(len(text.decode(errors="replace")) for text in texts)

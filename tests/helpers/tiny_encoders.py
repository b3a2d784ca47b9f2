"""Encoders in training over a tiny model, of every family, with all weights moved as training would."""

import pytest

from tests.helpers.tiny_models import torch

pytest.importorskip("peft")

from mvindex.encoder.checkpoint.families import BUILT_IN  # noqa: E402 - as below
from mvindex.records import Document  # noqa: E402 - only where the extra is
from mvindex_train.config import EncoderConfig  # noqa: E402 - as above
from mvindex_train.model import build_encoder  # noqa: E402 - as above

FAMILIES = [family.name for family in BUILT_IN]
VIEWS = {"single": 1, "sentences": 8}
DOCUMENTS = [
    Document("1", "The cat sat on the mat. It ran. He was red. Was she new?", "Dog"),
    Document("2", "a new house"),
    Document("3", "", "the river"),
    Document("4", "\u0301"),
    Document("5", "The cat sat on the old mat under the rug. " * 6, "the old red house"),
]


def build(base, family="snippets", seed=0, **options):
    options = {"max_views": VIEWS.get(family, 3)} | options
    return build_encoder(EncoderConfig(base=str(base), family=family, **options), seed)


def shaken(encoder, seed=1):
    """The encoder with every trained weight moved."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in encoder.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
    return encoder

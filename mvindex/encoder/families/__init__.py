"""Families: which tokens the model reads together, and which of their states make which view.

A family is a function from tokens to windows, named in the table of checkpoint/families.py. Each token of a window has
the row that its state is averaged into. In most families a row is a view; in those that pool tokens it is a token,
and the views are made of a document's tokens afterwards (clusters.py).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TypeAlias

from mvindex.encoder.checkpoint.families import Family
from mvindex.encoder.families.windows import Arrangement, Frame
from mvindex.encoder.text import TokenizedText
from mvindex.errors import ConfigError

Arrange: TypeAlias = Callable[[TokenizedText, Frame], Arrangement]


def load_arrange(family: Family) -> Arrange:
    """Return the function of the family, imported; raise ConfigError where there is none."""
    module, _, name = family.arrange.partition(":")
    try:
        arrange: Arrange = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as err:
        raise ConfigError(
            f"family {family.name!r}: expected a function at {family.arrange!r} (module:function), got {err}"
        ) from err
    return arrange

"""The settings of an index in Milvus, as last read or written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mvindex.store.lexical.tokenizer import StoredLexical
from mvindex.store.views import ViewType


class State:
    """The settings, which a store and its writer have in common."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings

    @property
    def dim(self) -> int | None:
        """Dimensions of the views; None until the first batch of an index with an encoder."""
        return None if (dim := self.settings["dim"]) is None else int(dim)

    @property
    def view_type(self) -> ViewType:
        """The number type that views are rounded to."""
        return ViewType(self.settings["dtype"])

    @property
    def lexical(self) -> StoredLexical | None:
        """How texts are split into terms; None without a lexical side."""
        setting = self.settings.get("lexical")
        return None if setting is None else StoredLexical.parse(setting)

    @property
    def has_views(self) -> bool:
        """Whether there is a collection of views, which is made before their first batch."""
        return bool(self.settings["has_views"])

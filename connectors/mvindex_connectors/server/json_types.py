"""Parts that types of JSON bodies share."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct


def described(description: str = "", **schema: Any) -> Meta:
    """Return a note for the description only; the index checks such values."""
    return Meta(description=description or None, extra_json_schema=schema or None)


# JSON has one kind of number: 10.0 is the whole number 10, which msgspec's int refuses.
Count = Annotated[float, Meta(ge=1, multiple_of=1)]
Offset = Annotated[float, Meta(ge=0, multiple_of=1)]
Vector = Annotated[list[float], Meta(min_length=1)]
IdempotencyKey = Annotated[
    str, described("A repeated request with the same key is not carried out again.", maxLength=128, pattern="^[ -~]*$")
]


class Request(Struct, forbid_unknown_fields=True, kw_only=True):
    """A request body."""

    # Exactly one of these members must be given.
    one_of: ClassVar[tuple[str, ...]] = ()

"""Copies of clients: a client is pickled by its address, and connects anew where it is read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mvindex.errors import ConfigError
from mvindex_connectors.remote.address import TOKEN_VARIABLE, Access, access_from_environment


class Reconnecting:
    """A client whose copies are connections of their own, with the same settings."""

    def _remember(self, url: Any, access: Access | None, **options: Any) -> Access:
        """Note how the client was made; return its credentials, from the environment where none are given."""
        self._url, self._options = url, options
        self._access = access or access_from_environment()
        return self._access

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what connects again elsewhere. ConfigError where that would hold a token."""
        return partial(self._class(), access=self._pickled_access(), **self._options), (self._url,)

    def __copy__(self) -> Any:
        return self._class()(self._url, access=self._access, **self._options)

    def _class(self) -> Callable[..., Any]:
        return type(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self.__copy__()

    def _pickled_access(self) -> Access | None:
        """Return the files of credentials; None where the environment has all, which is read again."""
        if self._access == access_from_environment():
            return None
        if self._access.token is not None:
            raise ConfigError(
                f"{self._url}: expected a token from the environment ({TOKEN_VARIABLE}), got one given in Python, "
                "which a pickle would hold. Set the variable here and where the pickle is read"
            )
        return self._access

"""Index and IndexClient have every member of IndexProtocol, with its parameters; AsyncIndexClient mirrors them."""

import inspect

import pytest

from mvindex import Index
from mvindex.index import IndexProtocol
from mvindex.index.protocol import Searches
from mvindex_connectors.remote import AsyncIndexClient, IndexClient

_OWN = {"__init__", "__module__", "__doc__", "__dict__", "__weakref__", "__parameters__", "__subclasshook__"}
MEMBERS = {
    name: member
    for each in (Searches, IndexProtocol)
    for name, member in vars(each).items()
    if (inspect.isfunction(member) or isinstance(member, property)) and name not in _OWN
}
# Python has no asynchronous len() and in.
ASYNC_NAMES = {
    "__len__": "count",
    "__iter__": "__aiter__",
    "__contains__": "contains",
    "__enter__": "__aenter__",
    "__exit__": "__aexit__",
}
# Known without a call.
ASYNC_PROPERTIES = {"where"}
STREAMS = {"__iter__", "scan"}


def parameters(function):
    """Return name, kind and default of each parameter."""
    return [(each.name, each.kind, each.default) for each in inspect.signature(function).parameters.values()]


def test_the_protocol_is_what_is_checked():
    assert {"search", "get", "scan", "add", "capabilities", "where", "__len__"} <= MEMBERS.keys()
    assert len(MEMBERS) >= 25


@pytest.mark.parametrize("kind", [Index, IndexClient])
@pytest.mark.parametrize("name", MEMBERS)
def test_an_implementation_has_the_member_with_its_parameters(kind, name):
    member = getattr(kind, name)
    if isinstance(MEMBERS[name], property):
        assert isinstance(member, property)
    else:
        assert parameters(member) == parameters(MEMBERS[name])


@pytest.mark.parametrize("name", MEMBERS)
def test_the_async_client_mirrors_the_member(name):
    member = getattr(AsyncIndexClient, ASYNC_NAMES.get(name, name))
    if name in ASYNC_PROPERTIES:
        assert isinstance(member, property)
        return
    assert inspect.iscoroutinefunction(member) != (name in STREAMS)
    if isinstance(MEMBERS[name], property):
        assert [each for each, *_ in parameters(member)] == ["self"]
    else:
        assert parameters(member) == parameters(MEMBERS[name])


@pytest.mark.parametrize("kind", [IndexClient, AsyncIndexClient])
def test_a_client_is_no_index_and_has_no_administration(kind):
    assert not issubclass(kind, Index)
    administration = {"build", "tune", "compact", "snapshot", "verify", "path", "settings", "encoder"}
    assert not [name for name in administration if hasattr(kind, name)]

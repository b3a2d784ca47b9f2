"""The table of encoder families: how a document becomes views, and what a family needs.

To add a family, write a function (TokenizedText, Frame) -> Arrangement (mvindex.encoder.families.windows) in a file of
`families/`, and add a Family to BUILT_IN here: the command line, the trainer and the tests take it from there. Another
package registers its Family by an entry point of the group `mvindex.encoder_families`, whose name is the family's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import entry_points

from mvindex.corpus.text.parts import Splitter
from mvindex.errors import ConfigError

GROUP = "mvindex.encoder_families"
# The most views where their number follows the text: one a part, so that none but the longest texts reach it.
AUTO_VIEWS = 256
_PARTS, _VIEWERS = (f"mvindex.encoder.families.{name}" for name in ("parts", "viewers"))
_APART = "is read as a text of its own, and no module cuts a text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One way to make views of a document.

    arrange: "module:function" from tokens to windows, imported when the family is first used. default_max_views: as in
    its paper. is_trained: it needs weights of its own; has_viewers: it puts viewer tokens into a text; pools_tokens:
    its rows are tokens, of which the views are made afterwards; has_spans: each view stands for a part of the text;
    is_nested: its first views are the same, however many follow. splitter: what cuts its texts.
    no_export: why modules of sentence-transformers cannot express it; None where they can.
    summary: what a view is, in a few words, for `mvindex families`.
    """

    name: str
    arrange: str
    summary: str = ""
    default_max_views: int = 8
    is_trained: bool = False
    has_viewers: bool = False
    pools_tokens: bool = False
    has_spans: bool = False
    is_nested: bool = False
    splitter: Splitter = Splitter.SENTENCES
    no_export: str | None = "no module of sentence-transformers makes its views"


SNIPPETS = Family(
    name="snippets",
    arrange=f"{_PARTS}:arrange_snippets",
    summary="the mean of the states of a part of the text: a sentence, an item, a clause",
    has_spans=True,
    splitter=Splitter.PARTS,
    no_export="a view is the mean of a snippet's own states, and no module knows where sentences end",
)
SINGLE = Family(
    name="single",
    arrange=f"{_PARTS}:arrange_single",
    summary="the mean of all states: one view of the whole text",
    default_max_views=1,
    no_export=None,
)
FIRST_K = Family(
    name="first-k",
    arrange=f"{_PARTS}:arrange_first_k",
    summary="the state of one of the first tokens (Luan et al. 2021)",
    is_nested=True,
    no_export="no module keeps the first k states of a text: MultiVectorMask chooses tokens by what they are",
)
POLY = Family(
    name="poly",
    arrange=f"{_PARTS}:arrange_poly",
    summary="what a learnt code attends to (Humeau et al. 2020)",
    is_nested=True,
    is_trained=True,
    pools_tokens=True,
    no_export="no module has codes that attend to the states",
)
KMEANS = Family(
    name="kmeans",
    arrange=f"{_PARTS}:arrange_kmeans",
    summary="a centroid of the tokens' states (DRPQ)",
    default_max_views=4,
    pools_tokens=True,
    no_export="a view is a k-means centroid, and HierarchicalTokenPooling is another clustering (Ward's)",
)
VIEWERS = Family(
    name="viewers",
    arrange=f"{_VIEWERS}:arrange_viewers",
    summary="the state of a viewer token before the text (MVR)",
    is_trained=True,
    has_viewers=True,
    no_export="no module puts viewer tokens at position 0 before the texts of documents only",
)
CONTEXT_VIEWERS = Family(
    name="context-viewers",
    arrange=f"{_VIEWERS}:arrange_context_viewers",
    summary="the state of a viewer token before a snippet (CAMVR)",
    has_spans=True,
    is_trained=True,
    has_viewers=True,
    no_export="no module puts a viewer token before each snippet of a document",
)
# All sentences of a passage, but for very long texts.
SENTENCES = Family(
    name="sentences",
    arrange=f"{_PARTS}:arrange_sentences",
    summary="a sentence, read as a text of its own",
    has_spans=True,
    default_max_views=32,
    no_export=f"each sentence {_APART}",
)
SPLITS = Family(
    name="splits",
    arrange=f"{_PARTS}:arrange_splits",
    summary="a stretch of tokens, read as a text of its own",
    default_max_views=4,
    no_export=f"each stretch of tokens {_APART}",
)

BUILT_IN = (SNIPPETS, SINGLE, FIRST_K, POLY, KMEANS, VIEWERS, CONTEXT_VIEWERS, SENTENCES, SPLITS)


def families() -> list[Family]:
    """Return all families, those of other packages last."""
    return [*BUILT_IN, *(parse_family(name) for name in family_names()[len(BUILT_IN) :])]


def family_names() -> list[str]:
    """Return the names of all families, those of other packages last."""
    return [*(family.name for family in BUILT_IN), *sorted(entry.name for entry in entry_points(group=GROUP))]


def parse_family(name: str) -> Family:
    """Return the family of that name; raise ConfigError that lists the known names."""
    built_in = next((family for family in BUILT_IN if family.name == name), None)
    if built_in is not None:
        return built_in
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            return _check(entry.load(), name, entry.value)
    raise ConfigError(f"family: expected one of {_quote(family_names())}, got {name!r}")


def _check(value: object, name: str, place: str) -> Family:
    if isinstance(value, Family) and value.name == name:
        return value
    raise ConfigError(f"{place}: expected a Family of the name {name!r}, got {value!r:.200}")


def _quote(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))

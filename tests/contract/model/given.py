"""The inputs of the model test: few ids, awkward texts, metadata of all types, vectors with ties; and filters."""

import zlib

import numpy as np
from hypothesis import strategies as st

# Few, so that documents meet again; none is another one's, whatever SQLite, JSON or Unicode may make of them.
IDS = [
    "a", "A", "é", "e\u0301", "0", "0.0", "null", "'; DROP TABLE documents; --", '"quoted" \\u0000', "🙂🏽\u2028",
    "x" * 1024, " %_*?[a] ",
]  # fmt: skip
NO_IDS = ["", "  ", "\t", "a\0", "\n", "x" * 1025, "\ud800", "\u0085"]
TEXTS = ["a", "plain words", "line\nbreak\r\n\ttab", "🙂 e\u0301 \u202e", "'; \"\\\\u0000", "long " * 1500, "b", "c"]
FIELDS = ["lang", "year", "deep.er", "deep.est", "dotted.key", "naïve key", "absent"]
NUMBERS = [0.0, 0.0, 1.0, 1.0, -1.0, 0.5, 2.0, -3.0, 0.1, -0.0, 100.25, 1e-3]
SCALARS = [None, True, False, 0, 1, 2, -7, 1.0, 0.1, 2.5, 2**53 + 1, 10**20, "", "1", "en", "EN", "é", "z" * 300]

texts = st.sampled_from(["", *TEXTS])
_values = st.one_of(st.sampled_from(SCALARS), st.lists(st.sampled_from(SCALARS), max_size=2))
_by_field = {
    "lang": st.sampled_from(["en", "en", "de", "EN", None]),
    "year": st.sampled_from([0, 1, 1, 2, 1.0, True, "1", None, 2**53 + 1, 10**20]),
    "deep": st.fixed_dictionaries({}, optional={"er": st.sampled_from([1, 2]), "est": _values}) | _values,
}
metadata = st.just({}) | st.fixed_dictionaries(
    {"lang": _by_field["lang"], "year": _by_field["year"]},
    optional={
        "deep": _by_field["deep"],
        "dotted.key": _values,
        "dotted": st.just({"key": 1}),
        "naïve key": _values,
        'x"\\y': _values,
    },
)

# What a filter may compare with: whole numbers in 64 bits, for SQLite.
_FITTING = [each for each in SCALARS if each != 10**20]
_IN_ORDER = [each for each in _FITTING if each is not None and not isinstance(each, bool)]


def _conditions(operands, in_order, has_lists):
    operand, several = st.sampled_from(operands), st.lists(st.sampled_from(operands), max_size=3)
    by_name = {"eq": operand, "ne": operand, "in": several, "nin": several, "exists": st.booleans()}
    by_name |= dict.fromkeys(("lt", "lte", "gt", "gte"), st.sampled_from(in_order))
    members = st.sampled_from([each for each in operands if each is not None])
    by_name |= {"contains": members} | dict.fromkeys(("contains_any", "contains_all"), st.lists(members, max_size=2))
    by_name = {name: test for name, test in by_name.items() if has_lists or not name.startswith("contains")}
    one = st.sampled_from(sorted(by_name)).flatmap(lambda name: st.fixed_dictionaries({name: by_name[name]}))
    return st.one_of(operand, one, one)


def _members(field, operands, in_order):
    return _conditions(operands, in_order, has_lists=field != "id").map(lambda condition: {field: condition})


_any_member = st.one_of(
    _members("lang", ["en", "de", None], ["en", "de", "f"]),
    _members("year", [0, 1, 2, True, "1"], [0, 1, 1.5, "1"]),
    _members("deep.er", [1, 2, None], [1, 2]),
    _members("id", IDS, IDS),
    st.sampled_from(FIELDS).flatmap(lambda field: _members(field, _FITTING, _IN_ORDER)),
)
filters = st.recursive(
    _any_member,
    lambda inner: st.one_of(
        inner.map(lambda part: {"not": part}),
        st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=1, max_size=3)).map(
            lambda pair: dict([pair])
        ),
        st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
    ),
    max_leaves=3,
)

# Asked in turn after every step.
USUAL_FILTERS = [
    {"year": 1}, {"year": True}, {"year": {"ne": 1}}, {"year": {"in": [1, "1", None]}}, {"year": {"lt": 2}},
    {"year": {"gte": "1"}}, {"year": {"nin": [True, 2.0]}}, {"lang": "en"}, {"lang": None}, {"lang": {"exists": True}},
    {"not": {"lang": "EN"}}, {"deep.er": 1}, {"deep.er": {"exists": False}}, {"deep": {"exists": True}},
    {"deep.est": {"contains": 1}}, {"dotted.key": {"contains_any": ["en", True]}}, {"dotted.key": 1},
    {"$not": {"dotted.key": {"contains_all": []}}},
    {"id": {"in": IDS[::2]}}, {"id": {"gt": "a"}}, {"or": [{"year": {"gt": 1}}, {"lang": "de", "id": {"ne": "a"}}]},
]  # fmt: skip


def vectors(dim):
    return st.lists(st.sampled_from(NUMBERS), min_size=dim, max_size=dim).map(_as_float32)


def views(dim):
    """One to five views of a document, as float32."""
    row = st.lists(st.sampled_from(NUMBERS), min_size=dim, max_size=dim)
    return st.builds(_with_twin, st.lists(row, min_size=1, max_size=4).map(_as_float32), st.booleans())


def _with_twin(rows, has_twin):
    """The rows, and one that fp16 cannot tell from the first: pruned as stored, not as given."""
    return np.concatenate([rows, rows[:1] * np.float32(1.0001)]) if has_twin else rows


def _as_float32(rows):
    return np.array(rows, dtype=np.float32)


class TextVectors:
    """An encoder that a model can foresee: one to four views of a text, from its checksum; some texts are refused."""

    def __init__(self, dim):
        self.dim = dim

    def views(self, text):
        if "boom" in text:
            raise ConnectionError("the encoder is away")
        digest = zlib.crc32(text.encode())
        picks = [(digest >> (2 * place)) % len(NUMBERS) for place in range(self.dim * (1 + digest % 4))]
        rows = _with_twin(np.array([NUMBERS[pick] for pick in picks]).reshape(-1, self.dim), digest % 3 == 0)
        return rows * np.nan if "not a number" in text else rows

    def documents(self, texts):
        return [self.views(text) for text in texts]

    def queries(self, texts):
        return np.array([self.views(text)[0] for text in texts])

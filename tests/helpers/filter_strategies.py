"""Random filters, and random metadata that they meet: every operator, mixed types, lists, dates, missing keys."""

from hypothesis import strategies as st

DATES = ["2024-05-01", "2024-05-01T12:30:00Z", "2024-05-01T00:30:00+02:00", "2024-05-02T00:00:00", "2024-02-30"]
SCALARS = [None, True, False, 0, 1, -3, 2.5, 1.0, "a", "b", "1", "", "é", "'; DROP", 2**60, 2**60 + 1]
LISTS = [[], [1], ["a", 1.0], [True, "é"], [[1], {"x": 1}, None], ["2024-05-01", "b", "a"], [2**60 + 1, 10**30, 2.5]]
VALUES = [*SCALARS, *LISTS, {"x": 1}, {"x": ["a"]}]
OPERANDS = [*SCALARS, *DATES, *({"$date": date} for date in DATES[:4])]
FIELDS = ["a", "b", "a.x", "id"]


def conditions(operands=OPERANDS):
    """Draw a filter that compares fields of metadata with some of these operands."""
    texts = [each for each in OPERANDS if isinstance(each, str | dict)]
    leaf = st.one_of(
        _tests(texts if name == "id" else operands, has_lists=name != "id").map(lambda test, name=name: {name: test})
        for name in FIELDS
    )
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.builds(lambda parts: {"and": parts}, st.lists(inner, max_size=3)),
            st.builds(lambda parts: {"or": parts}, st.lists(inner, max_size=3)),
            st.builds(lambda part: {"not": part}, inner),
        ),
        max_leaves=6,
    )


def _tests(operands, has_lists):
    """Draw what a filter says of a field."""
    scalars = st.sampled_from(operands)
    members = st.sampled_from([each for each in operands if each is not None])
    in_order = st.sampled_from([each for each in operands if not isinstance(each, bool | None)])
    of_lists = {"contains": members} | dict.fromkeys(["contains_any", "contains_all"], st.lists(members, max_size=3))
    by_operator = {"eq": scalars, "ne": scalars, "exists": st.booleans()} | (of_lists if has_lists else {})
    by_operator |= dict.fromkeys(["lt", "lte", "gt", "gte"], in_order)
    by_operator |= dict.fromkeys(["in", "nin"], st.lists(scalars, max_size=4))
    return st.one_of(
        scalars,
        *(
            operand.map(lambda each, name=prefix + operator: {name: each})
            for operator, operand in by_operator.items()
            for prefix in ("", "$")
        ),
    )


rows = st.dictionaries(st.sampled_from(["a", "b", "a.x"]), st.sampled_from(VALUES + DATES))

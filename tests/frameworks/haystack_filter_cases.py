"""Documents and filters by chance, with every kind of value that either side may find hard."""

from haystack import Document

VALUES = (
    None, True, False, 0, 1, 2, -3, 1.0, 2.5, 1e300, 2**60, "1", "a", "A", "ä", "", "2024-05-01", "2024-05-01T00:00:00",
    "2024-05-01T02:00:00+02:00", "2024-06", [1, 2], ["a"], {"deep": 1}, {"deep": "a"},
)  # fmt: skip
FIELDS = ("meta.x", "meta.y", "x", "meta.x.deep", "meta.missing", "id", "content", "meta.id", "other.x", "meta.not")
COMPARISONS = ("==", "!=", ">", ">=", "<", "<=", "in", "not in")


def chance_documents(rng, count=60):
    def one(number):
        meta = {key: VALUES[rng.integers(len(VALUES))] for key in ("x", "y", "id", "not") if rng.random() < 0.8}
        return Document(id=f"d{number}", content=f"text {number % 7}", meta=meta, embedding=[1.0, float(number)])

    return [one(number) for number in range(count)]


def chance_filter(rng, depth=0):
    if depth < 3 and rng.random() < 0.4:
        conditions = [chance_filter(rng, depth + 1) for _ in range(rng.integers(0, 4))]
        return {"operator": str(rng.choice(["AND", "OR", "NOT"])), "conditions": conditions}
    field, operator = str(rng.choice(FIELDS)), str(rng.choice(COMPARISONS))
    pool = (*VALUES, "d3", "text 1")
    if operator in ("in", "not in"):
        value = [pool[rng.integers(len(pool))] for _ in range(rng.integers(0, 4))]
    else:
        value = pool[rng.integers(len(pool))]
    if operator in (">", ">=", "<", "<=") and isinstance(value, list | dict):
        value = 1
    return {"field": field, "operator": operator, "value": value}

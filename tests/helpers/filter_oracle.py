"""The filter grammar as its description says, over one document's metadata: slow and plain."""

import datetime
import math

_OPERATORS = ("eq", "ne", "lt", "lte", "gt", "gte", "in", "nin", "exists", "contains", "contains_any", "contains_all")
_LARGEST = 1 << 63
_FORMATS = {"%Y-%m-%dT%H:%M:%S.%f%z": 0, "%Y-%m-%dT%H:%M:%S%z": 0, "%Y-%m-%dT%H:%M:%S": 0, "%Y-%m-%d": 1}


def holds(condition, row: dict, doc_id: str) -> bool:
    """Return whether a filter of the grammar holds for a document."""
    return all(_member(name, value, row, doc_id) for name, value in condition.items())


def is_of_grammar(condition, depth: int = 0) -> bool:
    """Return whether the value is a filter, by the description only."""
    if not isinstance(condition, dict) or depth > 20:
        return False
    return all(_is_member(name, value, depth) for name, value in condition.items())


def _is_member(name, value, depth: int) -> bool:
    if not isinstance(name, str) or not name:
        return False
    if name.removeprefix("$") in ("and", "or"):
        return isinstance(value, list | tuple) and all(is_of_grammar(part, depth + 1) for part in value)
    if name.removeprefix("$") == "not":
        return is_of_grammar(value, depth + 1)
    if not name.isprintable() or '"' in name or "\\" in name or name.startswith("$"):
        return False
    if not isinstance(value, dict) or set(value) == {"$date"}:
        return _is_comparable(name, value)
    return bool(value) and all(_is_test(name, operator, operand) for operator, operand in value.items())


def _is_test(name, operator, operand) -> bool:
    operator = operator.removeprefix("$") if isinstance(operator, str) else operator
    if operator not in _OPERATORS:
        return False
    if operator == "exists":
        return isinstance(operand, bool)
    if operator.startswith("contains"):
        members = [operand] if operator == "contains" else operand
        is_list = isinstance(members, list | tuple)
        return name != "id" and is_list and all(each is not None and _is_scalar(each) for each in members)
    if operator in ("in", "nin"):
        return isinstance(operand, list | tuple) and all(_is_comparable(name, each) for each in operand)
    if operator in ("eq", "ne"):
        return _is_comparable(name, operand)
    return _is_comparable(name, operand) and operand is not None and not isinstance(operand, bool)


def _is_comparable(name, value) -> bool:
    """Return whether a field may be compared with a value: an id is a string."""
    return _is_scalar(value) and (name != "id" or isinstance(value, str | dict))


def _is_scalar(value) -> bool:
    if isinstance(value, str):
        return "\0" not in value and not any("\ud800" <= char <= "\udfff" for char in value)
    if isinstance(value, bool) or value is None:
        return True
    if isinstance(value, int):
        return -_LARGEST <= value < _LARGEST
    if isinstance(value, dict):
        return set(value) == {"$date"} and _period(value["$date"]) is not None
    return isinstance(value, float) and math.isfinite(value)


def _period(value):
    """Return the first moment of a date, in UTC, and the first after it; None for no date. Days and moments only."""
    for form, days in _FORMATS.items():
        try:
            begin = datetime.datetime.strptime(value, form)
        except (TypeError, ValueError):
            continue
        begin = begin if begin.tzinfo else begin.replace(tzinfo=datetime.timezone.utc)
        return begin, begin + datetime.timedelta(days=days, microseconds=1 - days)
    return None


def _test_date(operator, operand, found) -> bool:
    (begin, end), own = _period(operand["$date"]), _period(found)
    if own is None:
        return False
    tests = {"eq": begin <= own[0] < end, "lt": own[0] < begin, "lte": own[0] < end, "gt": own[0] >= end}
    return {**tests, "gte": own[0] >= begin}[operator]


def _member(name, value, row, doc_id) -> bool:
    name = name.removeprefix("$")
    if name == "and":
        return all(holds(part, row, doc_id) for part in value)
    if name == "or":
        return any(holds(part, row, doc_id) for part in value)
    if name == "not":
        return not holds(value, row, doc_id)
    found = _lookup(name, row, doc_id)
    tests = value if isinstance(value, dict) and "$date" not in value else {"eq": value}
    tests = {operator.removeprefix("$"): operand for operator, operand in tests.items()}
    return all(_test(operator, _operand(name, operator, operand), found) for operator, operand in tests.items())


def _operand(name, operator, operand):
    """Return the operand; a text of a day or moment is a date where values are ordered, but for ids."""
    is_day = operator in ("lt", "lte", "gt", "gte") and name != "id" and isinstance(operand, str)
    return {"$date": operand} if is_day and _period(operand) is not None else operand


def _lookup(name, row, doc_id):
    if name == "id":
        return doc_id
    found = _at(name, row)
    return [_held(each) for each in found] if isinstance(found, list) else _held(found)


def _at(name, row):
    """Return the value of a field: of the whole key, else of the longest first key that leads to one."""
    found = _values(name, row)
    return min(found, key=lambda pair: pair[0])[1] if found else None


def _values(name, row):
    """Return each value of a field, after the number of keys to it, negative lengths of these, and the keys."""
    if not isinstance(row, dict):
        return []
    found = [((1, [-len(name)], name), row[name])] if name in row else []
    for place, char in enumerate(name):
        if char == ".":
            for (count, lengths, _), value in _values(name[place + 1 :], row.get(name[:place])):
                found.append(((count + 1, [-place, *lengths], name), value))
    return found


def _held(value):
    """Return a value as it is held: a whole number beyond 64 bits is the nearest double."""
    is_large = isinstance(value, int) and not -_LARGEST <= value < _LARGEST
    return _as_double(value) if is_large else value


def _as_double(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _kind(value) -> str:
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, int | float) else type(value).__name__


def _test(operator, operand, found) -> bool:
    if operator in ("in", "nin"):
        return any(_equal(found, item) for item in operand) == (operator == "in")
    if operator in ("eq", "ne"):
        return _equal(found, operand) == (operator == "eq")
    if operator == "exists":
        return (found is not None) == operand
    if operator.startswith("contains"):
        wanted = [operand] if operator == "contains" else operand
        has_each = [any(_equal(member, each) for member in found) for each in wanted] if isinstance(found, list) else []
        return isinstance(found, list) and (all if operator == "contains_all" else any)(has_each)
    if isinstance(operand, dict):
        return _test_date(operator, operand, found)
    if _kind(found) != _kind(operand) or isinstance(found, list | dict):
        return False
    return {"lt": found < operand, "lte": found <= operand, "gt": found > operand, "gte": found >= operand}[operator]


def _equal(found, operand) -> bool:
    if isinstance(operand, dict):
        return _test_date("eq", operand, found)
    return _kind(found) == _kind(operand) and found == operand

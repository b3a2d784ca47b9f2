"""Retries: after which errors, how often, and after which waits."""

import asyncio
import time

import pytest

from mvindex.retries import Again, Retries


class Failing:
    """Fails as often as it has errors, then returns how often it was called."""

    def __init__(self, *errors):
        self.errors, self.calls = list(errors), 0

    def __call__(self):
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.calls

    async def later(self):
        return self()


@pytest.mark.parametrize("is_awaited", [False, True])
@pytest.mark.parametrize(
    ("errors", "options", "calls", "raised"),
    [
        ([], {}, 1, None),
        ([KeyError("a"), KeyError("b")], {"tries": 3}, 3, None),
        ([KeyError("a"), KeyError("b")], {"tries": 2}, 2, "b"),
        ([KeyError("a"), ValueError("b")], {"tries": 3}, 2, "b"),
        ([KeyError("a")], {"for_s": 0.0}, 1, "a"),
        ([KeyError("a")], {"first_s": 1.0, "for_s": 0.4}, 1, "a"),
    ],
)
def test_it_is_tried_again_after_these_errors_so_often_and_for_so_long(is_awaited, errors, options, calls, raised):
    failing, retries = Failing(*errors), Retries(KeyError, **options)

    def run():
        return asyncio.run(retries.run_async(failing.later)) if is_awaited else retries.run(failing)

    if raised is None:
        assert run() == calls
    else:
        with pytest.raises((KeyError, ValueError), match=raised):
            run()
    assert failing.calls == calls


def test_waits_double_up_to_the_longest_and_are_shortened_by_a_half_at_most():
    retries = Retries(KeyError, first_s=1.0, longest_s=5.0)
    waits = [retries.wait_after(KeyError()) for _ in range(5)]
    assert all(longest / 2 <= wait <= longest for wait, longest in zip(waits, (1, 2, 4, 5, 5), strict=True))
    assert Retries(KeyError).wait_after(KeyError()) == 0


@pytest.mark.parametrize(("asked_s", "wait_s"), [(None, 0.0), (0.0, 0.0), (2.0, 2.0), (2.1, None)])
def test_the_other_side_may_ask_for_a_wait_up_to_the_longest(asked_s, wait_s):
    assert Retries(Again, longest_s=2.0).wait_after(Again("busy", asked_s)) == wait_s


def test_a_function_decides_and_prepares_the_next_try_only_where_there_is_one():
    prepared = []

    def again(err):
        prepared.append(err)
        return isinstance(err, KeyError)

    with pytest.raises(KeyError):
        Retries(again, tries=2).run(Failing(KeyError(), KeyError()))
    assert len(prepared) == 1
    with pytest.raises(ValueError):
        Retries(again).run(Failing(ValueError()))


def test_the_time_of_a_try_counts():
    retries = Retries(KeyError, for_s=0.05)

    def slow():
        time.sleep(0.1)
        raise KeyError

    with pytest.raises(KeyError):
        retries.run(slow)
    assert retries.tried == 1

"""Agreement of our rows with a paper's claim: paired differences over questions and their standard errors."""

from dataclasses import dataclass
from enum import Enum

import numpy as np

from studies_parts.claims import Above

# A difference counts from so many of its standard errors on: 1 in 20 of no difference is as large.
STANDARD_ERRORS = 2.0
# All views of a document are one, in effect.
COLLAPSED_COSINE, COLLAPSED_LV = 0.98, 0.01
COLLAPSED = "collapsed"


class Verdict(Enum):
    AGREES = "agrees"
    DISAGREES = "disagrees"
    NOISE = "within noise"
    COLLAPSED = "not shown: collapsed"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Difference:
    """A mean difference in points of percent (PPL, LV: in their own unit) and its standard error over questions."""

    mean: float
    error: float

    @property
    def verdict(self):
        if abs(self.mean) <= STANDARD_ERRORS * self.error or self.mean == 0:
            return Verdict.NOISE
        return Verdict.AGREES if self.mean > 0 else Verdict.DISAGREES


def collapse_label(view_cosine, lv):
    """Return "collapsed" where the views of a document are equal: mean cosine above .98 or LV below .01; else empty."""
    is_collapsed = view_cosine is not None and (
        view_cosine > COLLAPSED_COSINE or (lv is not None and lv < COLLAPSED_LV)
    )
    return COLLAPSED if is_collapsed else ""


def values(results, metric):
    """Return the metric by question (PPL: by document), the mean over the row's seeds; NaN without a value."""
    return np.mean([_values(result, metric) for result in results], axis=0)


def figure(results, metric):
    """Return a figure of the whole row, the mean over its seeds; None where one is missing."""
    found = [_figure(result, metric) for result in results]
    return None if None in found else float(np.mean(found))


def difference(higher, lower, metric):
    """Return the difference of two rows, paired by question; raise ValueError for rows of other questions."""
    ours, theirs = values(higher, metric), values(lower, metric)
    if len(ours) != len(theirs):
        raise ValueError(f"{metric}: expected rows of the same questions, got {len(ours)} and {len(theirs)} values")
    gaps = (ours - theirs)[~np.isnan(ours - theirs)]
    if len(gaps) < 2:
        return None
    return Difference(float(gaps.mean()), float(gaps.std(ddof=1) / np.sqrt(len(gaps))))


def judge(claim, rows, at=None):
    """Return the verdict and its evidence, a Difference or a number (None: unknown) for each test.

    rows: results by the row's name, of one form, a list over seeds each. at: a metric in place of the claim's.
    """
    named = {name for test in claim.tests for name in ((test.higher, test.lower) if _is_pair(test) else (test.row,))}
    if not named <= rows.keys():
        return Verdict.NOT_RUN, []
    found = [_test(test, rows, at or test.metric) for test in claim.tests]
    verdicts = [verdict for verdict, _ in found]
    if not claim.of_collapse and any(result["label"] == COLLAPSED for name in named for result in rows[name]):
        return Verdict.COLLAPSED, [value for _, value in found]
    return _joint(verdicts), [value for _, value in found]


def _joint(verdicts):
    for verdict in (Verdict.NOT_RUN, Verdict.DISAGREES, Verdict.NOISE):
        if verdict in verdicts:
            return verdict
    return Verdict.AGREES


def _test(test, rows, metric):
    if _is_pair(test):
        gap = difference(rows[test.higher], rows[test.lower], metric)
        return (Verdict.NOT_RUN if gap is None else gap.verdict), gap
    value = figure(rows[test.row], metric)
    if value is None:
        return Verdict.NOT_RUN, None
    return (Verdict.AGREES if test.least <= value <= test.most else Verdict.DISAGREES), value


def _is_pair(test):
    return isinstance(test, Above)


def _values(result, metric):
    name, _, depth = metric.partition("@")
    if name in ("R", "AV"):
        ranks = np.array(result["ranks" if name == "R" else "answer_view_ranks"])
        return 100.0 * ((ranks > 0) & (ranks <= int(depth)))
    if name == "MRR":
        return 100.0 / np.array(result["ranks"])
    return np.array(result[name.lower()], dtype=np.float64)


def _figure(result, metric):
    if metric.endswith(" KL"):
        found = result.get("attention_kl")
        return found and found[metric.removesuffix(" KL")]
    # Views that most documents have: a slot that few have is judged on few questions.
    half = max((view["documents"] for view in result.get("single_views") or ()), default=0) / 2
    shares = [100 * view["R@5"] for view in result.get("single_views") or () if view["documents"] >= half]
    if not shares:
        return None
    if metric == "spread of single views":
        return max(shares) - min(shares)
    return float(np.mean(_values(result, "R@5"))) - max(shares)

"""The papers' claims on their tables, in words and as comparisons of rows."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Above:
    """One row has a higher metric than another, question by question (PPL: document by document)."""

    metric: str
    higher: str
    lower: str


@dataclass(frozen=True, slots=True)
class Within:
    """A figure of one row is between least and most."""

    metric: str
    row: str
    least: float = float("-inf")
    most: float = float("inf")


@dataclass(frozen=True, slots=True)
class Claim:
    """words: the paper's claim; figures: the paper's numbers.

    of_collapse: a collapsed row does not spoil it; of_papers_form: other forms keep views apart by design.
    """

    study: str
    words: str
    figures: str
    tests: tuple[Above | Within, ...]
    of_collapse: bool = False
    of_papers_form: bool = False


def falling(metric, *names):
    """Return comparisons of each row with the next, which is lower."""
    return tuple(Above(metric, higher, lower) for higher, lower in zip(names, names[1:], strict=False))


def first_above(metric, first, *names):
    """Return comparisons of the first row with the others, which are lower."""
    return tuple(Above(metric, first, name) for name in names)


_FIXED = ("tau = 0.3", "tau = 0.1", "tau = 10")
CLAIMS = (
    Claim("mvr-table-2", "k = 8 above k = 4 above one vector (DPR)", "R@5 75.5 > 68.5 > 66.2",
          falling("R@5", "k=8", "k=4", "k=1 (DPR)")),
    Claim("mvr-table-2", "k = 8 above k = 12", "R@5 75.5 > 74.8", falling("R@5", "k=8", "k=12")),
    Claim("mvr-table-2", "MVR above ME-BERT with as many vectors", "R@5 75.5 > 67.3",
          falling("R@5", "k=8", "ME-BERT k=8")),
    Claim("mvr-table-3", "the local loss helps", "R@5 75.5 > 73.7", falling("R@5", "MVR", "without local loss")),
    Claim("mvr-table-3", "annealing helps", "R@5 75.5 > 74.3", falling("R@5", "MVR", "without annealing (tau = 1)")),
    Claim("mvr-table-3", "without both it is worst", "R@5 72.8 < 73.7, 74.3",
          (Above("R@5", "without local loss", "without both"),
           Above("R@5", "without annealing (tau = 1)", "without both"))),
    Claim("mvr-table-3", "annealed tau above tau fixed at .3, .1 and 10", "R@5 75.5 > 74.6, 72.3, 70.2",
          first_above("R@5", "MVR", *_FIXED)),
    Claim("mvr-table-5", "views above sentences above 4 splits above 8 splits", "R@5 75.5 > 62.1 > 57.2 > 44.2",
          falling("R@5", "MVR", "sentences", "4 splits", "8 splits")),
    Claim("mvr-table-6", "different views win in MVR, one view in ME-BERT", "PPL 3.19 > 1.02",
          falling("PPL", "MVR", "ME-BERT")),
    Claim("mvr-table-6", "ME-BERT's winning view stands out more all the same", "LV .159 > .126",
          falling("LV", "ME-BERT", "MVR")),
    Claim("mvr-table-6", "the local loss sets views apart", "LV .126 > .052",
          falling("LV", "MVR", "without local loss")),
    Claim("mvr-table-6", "annealing lets more views win", "PPL 3.19 > 2.95",
          falling("PPL", "MVR", "without annealing")),
    Claim("mvr-table-8", "lambda = .01 above .5, .05 and .001", "R@5 75.5 > 72.4, 74.7, 72.9",
          first_above("R@5", "lambda = 0.01", "lambda = 0.5", "lambda = 0.05", "lambda = 0.001")),
    Claim("camvr-tables-2-3", "with one question a passage MVR's views are one: each alone finds the same",
          "R@5 of single views within 0.2 points", (Within("spread of single views", "MVR AVQ=1", most=1.0),), True,
          True),
    Claim("camvr-tables-2-3", "MVR's viewers attend alike", "KL 0.0",
          (Within("greatest KL", "MVR AVQ=1", most=0.05),), True, True),
    Claim("camvr-tables-2-3", "CAMVR's viewers attend apart", "KL .07 to .81",
          (Within("least KL", "CAMVR AVQ=1", least=0.07),), True, True),
    Claim("camvr-tables-2-3", "CAMVR's views differ in what each alone finds", "R@5 32.6, and 55.4 to 59.3",
          (Within("spread of single views", "CAMVR AVQ=1", least=1.0),), True, True),
    Claim("camvr-tables-2-3", "CAMVR above MVR", "R@5 63.8 > 55.5", falling("R@5", "CAMVR AVQ=1", "MVR AVQ=1"),
          True),
    Claim("camvr-table-4", "supervised, the winning view holds the answer more often", "AV@5 59.4 of R@5 69.0",
          falling("AV@5", "answer view supervised", "answer view not supervised")),
    Claim("camvr-table-5", "n = 8 above n = 4 above n = 1", "R@5 69.0 > 65.2 > 61.3",
          falling("R@5", "n=8", "n=4", "n=1")),
    Claim("camvr-table-7", "no single view finds what all find", "R@5 68.0 to 75.2 of 76.6",
          (Within("all views over the best single one", "n=8", least=0.0),)),
    Claim("drpq-table-5", "a start at equal intervals above a random one", "MRR@100 37.3 or 38.4 > 36.8",
          falling("MRR", "k=4", "k=4 random start")),
    Claim("drpq-table-5", "k = 8 above k = 4", "MRR@100 37.9 > 37.3", falling("MRR", "k=8", "k=4")),
    Claim("drpq-table-5", "refreshed negatives help", "MRR@100 38.4 > 37.3, 39.2 > 37.9",
          (Above("MRR", "k=4 refreshed", "k=4"), Above("MRR", "k=8 refreshed", "k=8"))),
    Claim("drpq-table-5", "refreshed: k = 16 above 8 above 4", "MRR@100 39.4 > 39.2 > 38.4",
          falling("MRR", "k=16 refreshed", "k=8 refreshed", "k=4 refreshed")),
)  # fmt: skip

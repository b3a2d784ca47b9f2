"""The rows of the studies: training settings, figures beside recall, and the paper's figures.

A row is trained in one of two forms. PAPER: the paper's method as it stands, with raw inner products and [CLS] or [VIE]
states. SMALL: the preset's small budget, the form that learns in CPU minutes on the packaged MiniLM: unit vectors times
20, mean pooling, and viewers that read their own stretch or snippet beside ten times its mean
(docs/how-to/training.md). Rows
of equal settings share one training run. The order is that of importance: a run that is cut short has the first ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Form(Enum):
    PAPER = "paper"
    SMALL = "small"


class Ask(Enum):
    """Figures of a row beside recall, LV, PPL and cosine."""

    SINGLE_VIEWS = "single views"
    ATTENTION = "attention"
    ANSWER_VIEW = "answer view"


class Kind(Enum):
    """The procedure of a row: training and measuring, or by measuring DRPQ's gradient weights while it trains."""

    TRAINED = "trained"
    WEIGHTS = "weights"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """paper: the paper's figures by metric. one_question: a passage has one question in training (AVQ = 1)."""

    study: str
    name: str
    form: Form
    preset: str
    overrides: tuple[str, ...] = ()
    one_question: bool = False
    asks: frozenset[Ask] = frozenset()
    paper: Mapping[str, float] = field(default_factory=dict)
    kind: Kind = Kind.TRAINED

    @property
    def key(self) -> str:
        return f"{self.study}/{self.name}/{self.form.value}"

    def is_named(self, pattern: str) -> bool:
        """Return whether the pattern matches: its study, study/name, or study/name/form."""
        return pattern in (self.study, f"{self.study}/{self.name}", self.key)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a paper's table: a row in every form that it is run in."""

    name: str
    preset: str
    overrides: tuple[str, ...] = ()
    paper: Mapping[str, float] = field(default_factory=dict)
    one_question: bool = False
    asks: frozenset[Ask] = frozenset()
    kind: Kind = Kind.TRAINED


def recalls(*shares: float) -> dict[str, float]:
    """Return the paper's R@5, R@20 and R@100 in percent, as many as it has."""
    return dict(zip(("R@5", "R@20", "R@100"), shares, strict=False))


NO_ANNEALING = ("loss.tau_floor=none", "loss.tau_alpha=none")
NO_LOCAL = ("loss.local_weight=0",)
NO_ANSWER = ("loss.answer_view=false",)
REFRESH, NO_REFRESH = ("refresh_epochs=1",), ("refresh_epochs=none",)
VIEWS = frozenset({Ask.SINGLE_VIEWS, Ask.ATTENTION})
WITH_ANSWER = frozenset({Ask.ANSWER_VIEW, Ask.SINGLE_VIEWS})


def fixed_tau(tau: float) -> tuple[str, ...]:
    return (f"loss.tau={tau}", *NO_ANNEALING)


def views(number: int) -> tuple[str, ...]:
    return (f"encoder.max_views={number}",)


MVR, CAMVR = "mvr", "camvr"
# Figures of SQuAD's dev questions, DPR base, but where a line says otherwise: percent.
TABLES: dict[str, list[Line]] = {
    "mvr-table-2": [
        Line("k=1 (DPR)", "dpr", paper=recalls(66.2, 76.8, 85.2)),
        Line("k=4", MVR, views(4), recalls(68.5, 78.5, 85.8)),
        Line("k=8", MVR, (), recalls(75.5, 83.2, 87.9)),
        Line("k=12", MVR, views(12), recalls(74.8, 82.9, 87.4)),
        Line("ME-BERT k=8", "me-bert", (), recalls(67.3, 77.9, 86.1)),
    ],
    "mvr-table-3": [
        Line("MVR", MVR, (), recalls(75.5, 83.2, 87.9)),
        Line("without local loss", MVR, NO_LOCAL, recalls(73.7, 82.1, 86.5)),
        Line("without annealing (tau = 1)", MVR, NO_ANNEALING, recalls(74.3, 81.9, 86.8)),
        Line("without both", MVR, (*NO_LOCAL, *NO_ANNEALING), recalls(72.8, 81.0, 85.8)),
        Line("tau = 0.3", MVR, fixed_tau(0.3), recalls(74.6)),
        Line("tau = 0.1", MVR, fixed_tau(0.1), recalls(72.3)),
        Line("tau = 10", MVR, fixed_tau(10), recalls(70.2)),
    ],
    "mvr-table-5": [
        Line("MVR", MVR, (), recalls(75.5, 83.2, 87.9)),
        Line("sentences", "sentences", ("loss.answer_view=true",), recalls(62.1, 73.2, 81.9)),
        Line("4 splits", "splits", views(4), recalls(57.2, 69.3, 78.5)),
        Line("8 splits", "splits", views(8), recalls(44.2, 57.9, 69.4)),
    ],
    "mvr-table-6": [
        Line("ME-BERT", "me-bert", (), {"PPL": 1.02, "LV": 0.159}),
        Line("MVR", MVR, (), {"PPL": 3.19, "LV": 0.126}),
        Line("without local loss", MVR, NO_LOCAL, {"PPL": 3.23, "LV": 0.052}),
        Line("without annealing", MVR, NO_ANNEALING, {"PPL": 2.95, "LV": 0.118}),
    ],
    "mvr-table-8": [
        Line("lambda = 0.5", MVR, ("loss.local_weight=0.5",), recalls(72.4)),
        Line("lambda = 0.05", MVR, ("loss.local_weight=0.05",), recalls(74.7)),
        Line("lambda = 0.01", MVR, (), recalls(75.5)),
        Line("lambda = 0.001", MVR, ("loss.local_weight=0.001",), recalls(72.9)),
    ],
    # NQ in the paper; its KL is of attention, 0.0 for MVR and 0.07 to 0.81 for CAMVR.
    "camvr-tables-2-3": [
        Line("MVR AVQ=1", MVR, (), recalls(55.51, 73.16, 84.35), one_question=True, asks=VIEWS),
        Line("CAMVR AVQ=1", CAMVR, (), recalls(63.80, 78.70, 86.70), one_question=True, asks=VIEWS),
    ],
    "camvr-table-4": [
        Line("answer view supervised", CAMVR, (), recalls(69.0, 79.2, 86.0) | {"AV@5": 59.4, "AV@20": 70.5},
             asks=WITH_ANSWER),
        Line("answer view not supervised", CAMVR, NO_ANSWER, asks=WITH_ANSWER),
    ],
    "camvr-table-5": [
        Line("n=1", CAMVR, views(1), recalls(61.3)),
        Line("n=4", CAMVR, views(4), recalls(65.2)),
        Line("n=8", CAMVR, (), recalls(69.0)),
        Line("n=12", CAMVR, views(12), recalls(69.0)),
    ],
    # NQ in the paper: views alone have R@5 of 68.0 to 75.2.
    "camvr-table-7": [Line("n=8", CAMVR, (), recalls(76.6), asks=WITH_ANSWER)],
    # MS MARCO documents in the paper, MRR@100.
    "drpq-table-5": [
        Line("k=4 random start", "drpq", ("encoder.cluster_init=random", *NO_REFRESH), {"MRR": 36.8}),
        Line("k=4", "drpq", NO_REFRESH, {"MRR": 37.3}),
        Line("k=8", "drpq", (*views(8), *NO_REFRESH), {"MRR": 37.9}),
        Line("k=16", "drpq", (*views(16), *NO_REFRESH)),
        Line("k=4 refreshed", "drpq", REFRESH, {"MRR": 38.4}),
        Line("k=8 refreshed", "drpq", (*views(8), *REFRESH), {"MRR": 39.2}),
        Line("k=16 refreshed", "drpq", (*views(16), *REFRESH), {"MRR": 39.4}),
    ],
    "drpq-figure-2": [
        Line("centroids and random tokens", "drpq", NO_REFRESH, kind=Kind.WEIGHTS),
        Line("first tokens", "drpq", ("encoder.family=first-k", *NO_REFRESH), kind=Kind.WEIGHTS),
    ],
}  # fmt: skip

# What is run first: of each study the rows that its first claim needs, then the others. Each entry names a study or a
# row, in one form.
ORDER: list[tuple[str, Form]] = [
    ("mvr-table-2/k=1 (DPR)", Form.SMALL),
    ("mvr-table-2/k=4", Form.SMALL),
    ("mvr-table-2/k=8", Form.SMALL),
    ("camvr-tables-2-3", Form.PAPER),
    ("mvr-table-2/k=8", Form.PAPER),
    ("mvr-table-2/ME-BERT k=8", Form.PAPER),
    ("mvr-table-6/ME-BERT", Form.PAPER),
    ("mvr-table-6/MVR", Form.PAPER),
    ("mvr-table-3/without local loss", Form.SMALL),
    ("mvr-table-3/without annealing (tau = 1)", Form.SMALL),
    ("mvr-table-3/MVR", Form.SMALL),
    ("drpq-table-5/k=4 random start", Form.SMALL),
    ("drpq-table-5/k=4", Form.SMALL),
    ("camvr-table-4", Form.SMALL),
    ("camvr-table-7", Form.SMALL),
    ("mvr-table-2/ME-BERT k=8", Form.SMALL),
    ("mvr-table-6", Form.SMALL),
    ("drpq-table-5/k=4 refreshed", Form.SMALL),
    ("drpq-table-5/k=8", Form.SMALL),
    ("mvr-table-5", Form.SMALL),
    ("drpq-figure-2", Form.SMALL),
    ("camvr-table-5", Form.SMALL),
    ("mvr-table-8", Form.SMALL),
    ("mvr-table-3", Form.SMALL),
    ("drpq-table-5", Form.SMALL),
    ("camvr-tables-2-3", Form.SMALL),
    ("mvr-table-2", Form.SMALL),
    ("mvr-table-6", Form.PAPER),
    ("camvr-table-4", Form.PAPER),
    ("camvr-table-7", Form.PAPER),
    ("mvr-table-2", Form.PAPER),
    ("drpq-table-5", Form.PAPER),
    ("drpq-figure-2", Form.PAPER),
    ("mvr-table-3", Form.PAPER),
    ("camvr-table-5", Form.PAPER),
    ("mvr-table-5", Form.PAPER),
    ("mvr-table-8", Form.PAPER),
]


def all_rows() -> list[Row]:
    """Return every line of every table in every form, in order of importance."""
    found: dict[str, Row] = {}
    for pattern, form in ORDER:
        for study, lines in TABLES.items():
            for line in lines:
                row = _row(study, line, form)
                if row.is_named(pattern):
                    found.setdefault(row.key, row)
    return list(found.values())


def _row(study: str, line: Line, form: Form) -> Row:
    return Row(
        study=study, name=line.name, form=form, preset=line.preset, overrides=line.overrides, paper=line.paper,
        one_question=line.one_question, asks=line.asks, kind=line.kind,
    )  # fmt: skip

"""An analysis report with every section, of any number of views and questions, made by plain arithmetic."""

CUTOFFS = (1, 5, 20, 100)
SENTENCES = (
    "Oxygen was isolated by Carl Wilhelm Scheele in Uppsala in 1773 or earlier.",
    "Joseph Priestley, in Wiltshire, found it on his own in 1774, and is often given priority.",
    "The name was coined in 1777 by Antoine Lavoisier.",
    "His experiments with it discredited the phlogiston theory of combustion and corrosion.",
    "It is the third most abundant element of the universe by mass, after hydrogen and helium.",
    "At standard pressure two atoms bind to form a colourless and odourless gas.",
    "Diatomic oxygen gas makes up about a fifth of the atmosphere of the Earth.",
    "Monitoring shows a global downward trend of its level, because of the burning of fossil fuels.",
)


def recalls(best):
    """R@k that rise with k towards 1, from `best` at k = 5."""
    return {f"R@{k}": 1 - (1 - best) * factor for k, factor in zip(CUTOFFS, (1.7, 1.0, 0.62, 0.35), strict=True)}


def passage(doc_id, winner, num_views, has_spans=True, before=""):
    """A document whose views stand for its sentences, one each, in order; `before` stands in front of them."""
    text, views = before, []
    for slot in range(num_views):
        sentence = SENTENCES[slot % len(SENTENCES)]
        span = [len(text), len(text) + len(sentence)] if has_spans else None
        views.append({"slot": slot, "score": 0.3 + (0.4 if slot == winner else 0.02 * slot), "span": span})
        text += sentence + " "
    return {
        "id": doc_id, "title": f"Oxygen {doc_id}", "text": text, "score": 0.7, "slot": winner, "views": views,
        "is_cut": False,
    }  # fmt: skip


def hard_question(number, num_views):
    return {
        "id": f"q{number}",
        "question": f"Who gave oxygen its name, and when was that ({number})?",
        "rank": None if number == 0 else 130 - 9 * number,
        "answers": ["Antoine Lavoisier", "Lavoisier"],
        "relevant": passage(f"w{number}", min(2, num_views - 1), num_views),
        "retrieved": passage(f"f{number}", 0, num_views),
    }


def plane(number, num_views, num_questions):
    corners = [(0.1 * (slot * 3 % 7) - 0.3, 0.07 * (slot * 5 % 11) - 0.3) for slot in range(num_views)]
    return {
        "id": f"d{number}",
        "title": f"Document {number}",
        "text": " ".join(SENTENCES),
        "explained": 0.62,
        "views": [
            {"slot": slot, "x": x, "y": y, "snippet": f"{SENTENCES[slot % 8]} (document {number}, view {slot})"}
            for slot, (x, y) in enumerate(corners)
        ],
        "questions": [
            {
                "text": f"Which year is asked for here, question {asked}?", "slot": asked % num_views,
                "x": corners[asked % num_views][0] + 0.05 + 0.02 * asked, "y": corners[asked % num_views][1] - 0.06,
            }
            for asked in range(num_questions)
        ],
    }  # fmt: skip


def heat(num_views, own, other, step):
    return [
        [own if row == column else other + step * (abs(row - column) % 8) for column in range(num_views)]
        for row in range(num_views)
    ]


def histogram():
    edges = [round(-1 + 0.05 * place, 2) for place in range(41)]
    hill = {
        26: 20,
        27: 90,
        28: 310,
        29: 900,
        30: 1900,
        31: 3100,
        32: 3900,
        33: 3600,
        34: 2500,
        35: 1300,
        36: 420,
        37: 70,
    }
    return {"edges": edges, "counts": [hill.get(place, 0) for place in range(40)]}


def fewer_views(num_views):
    return [
        {
            "views": number, "views_per_document": number * 0.95, "vectors": 19_486 * number,
            "bytes": 118_000_000 * number, "share": number / num_views, **recalls(0.75 - 0.16 / number),
        }
        for number in range(1, num_views + 1)
    ]  # fmt: skip


def pruned():
    steps = (
        (0.05, 0.99875),
        (0.1, 0.995),
        (0.2, 0.98),
        (0.3, 0.955),
        (0.4, 0.92),
        (0.5, 0.875),
        (0.6, 0.82),
        (0.8, 0.68),
    )
    shares = (1.0, 0.995, 0.97, 0.91, 0.8, 0.63, 0.44, 0.16)
    return [
        {
            "eps": eps, "cosine": cosine, "views": int(154_000 * share), "bytes": int(944_000_000 * share),
            "share": share, **recalls(0.74 - 0.2 * (1 - share) ** 2),
        }
        for (eps, cosine), share in zip(steps, shares, strict=True)
    ]  # fmt: skip


def made_report(num_views=8, num_questions=6, num_maps=3, num_hard=4):
    """A report with every section filled."""
    whole = recalls(0.74)
    gradient = [0.61 * 0.5**rank + 0.02 for rank in range(num_views)]
    wins = [2 ** -(slot * 3 % 4) for slot in range(num_views)]
    return {
        "version": "0.1.0",
        "subject": {
            "path": "/data/wiki/oxygen.mvx", "kind": "index", "documents": 20_512, "views": 153_908,
            "encoder": {"source": "mvindex/snippets-minilm", "family": "snippets", "max_views": num_views},
            "views_per_document": 7.5, "most_views": num_views, "dim": 384, "dtype": "fp16", "view_bytes": 118_201_344,
        },
        "questions": {
            "files": ["squad-dev.jsonl"], "read": 10_570, "used": 2000, "with_gold": 2000, "with_answers": 2000,
            "gold_missing": 0, "target": "gold", "documents": 1204, "per_document": 1.66,
        },
        "sample": {"documents": 20_512, "of": 20_512, "seed": 0, "is_all": True},
        "scoring": {"scoring": "max", "temperature": None, "scale": 20.0},
        "recall": {
            "cutoffs": list(CUTOFFS), "whole": whole,
            "interval": {name: [value - 0.019, value + 0.018] for name, value in whole.items()},
            "answer": recalls(0.78), "answer_view": recalls(0.7), "answer_citation": recalls(0.74),
        },
        "single_view": [
            {"slot": slot, "documents": 1 - 0.03 * (slot % 8), **recalls(0.57 + 0.02 * (slot * 3 % 5))}
            for slot in range(num_views)
        ],
        "one_vector": {
            "name": "mean of the views", **recalls(0.68),
            "gain": {f"R@{k}": {"value": 0.06, "low": 0.031, "high": 0.089} for k in CUTOFFS},
        },
        "fewer_views": fewer_views(num_views),
        "pruned": pruned(),
        "local": {
            "pairs": 2000, "lv": 0.214, "ppl": min(3.19, num_views),
            "margin": {"mean": 0.094, "p10": 0.008, "p50": 0.071, "p90": 0.213},
        },
        "similarity": {
            "mean_cosine": 0.631, "heat": heat(num_views, 1.0, 0.72, -0.04), "histogram": histogram(),
            "near_duplicates": [{"eps": 0.05, "share": 0.012}, {"eps": 0.2, "share": 0.034}], "documents": 20_512,
        },
        "usage": [
            {"slot": slot, "wins": won / sum(wins), "available": 1 - 0.03 * (slot % 8)} for slot, won in enumerate(wins)
        ],
        "attention": {"kl": heat(num_views, 0.0, 0.9, 0.17), "mean": 1.37, "documents": 100},
        "gradient": {"temperature": 1.0, "pairs": 2000, "max": 0.63, "variance": 0.041, "by_rank": gradient},
        "hardest": [hard_question(number, num_views) for number in range(num_hard)],
        "maps": [plane(number, num_views, num_questions) for number in range(num_maps)],
        "verdict": {
            "level": "pays", "headline": "Several views find 6.0 points more at R@5 than the best single vector.",
            "reasons": ["The gain lies outside its 95% interval.", "3.2 of 7.5 views win questions of a document."],
            "advice": ["`mvindex ingest --prune-views 0.3` saves 9% of the bytes, recall stays.", "Keep 8 views."],
        },
        "left_out": {},
        "settings": {"max_questions": 2000, "seed": 0, "max_documents": 20_000, "attention_documents": 100},
    }  # fmt: skip


def emptied(report, *sections, why="no encoder is known for this index"):
    """The report with these sections null, and why."""
    return {**report, **dict.fromkeys(sections), "left_out": dict.fromkeys(sections, why)}


def hostile_report():
    """A report whose texts try to become markup, and these texts."""
    texts = {
        "tags": "</script><img src=x onerror='window.broken=1'><svg onload='window.broken=1'>\"'&amp;&lt;",
        "arabic": "\u0627\u0644\u0623\u0643\u0633\u062c\u064a\u0646 \u202e override",
        "emoji": "\U0001f9ea\U0001f469\u200d\U0001f52c" * 20,
        "long": "x" * 20_000,
        "controls": "a\u2028b\u2029c\x01\x1bd<!-- ]]> </style></title> \0 \ud800",
    }
    report = made_report(num_hard=len(texts), num_maps=len(texts))
    for question, shown, text in zip(report["hardest"], report["maps"], texts.values(), strict=True):
        question.update(question=text, id=text, answers=[text])
        for side in ("relevant", "retrieved"):
            question[side].update(id=text, title=text, text=text)
        shown.update(id=text, title=text)
        for place in (*shown["views"], *shown["questions"]):
            place.update({"snippet" if "snippet" in place else "text": text})
    report["verdict"].update(headline=texts["tags"], reasons=list(texts.values()), advice=[texts["tags"]])
    report["one_vector"]["name"] = texts["tags"]
    report["subject"] |= {"path": f"/data/{texts['controls']}", "encoder": {"source": texts["tags"]}}
    report["questions"]["files"] = [texts["tags"]]
    report["attention"], report["left_out"] = None, {"attention": texts["tags"], texts["tags"]: texts["arabic"]}
    return report, texts

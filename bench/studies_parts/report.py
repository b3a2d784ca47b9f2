"""Write docs/explanation/studies.md from the results: every figure and verdict between its markers is generated.

The page has the verdicts; rows.tsv beside the results has the figures of every row, and names those that were not run.
"""

import csv
import math
import re
from collections import Counter, defaultdict

import numpy as np

from studies_parts.agreement import Difference, Verdict, judge, values
from studies_parts.claims import CLAIMS
from studies_parts.results import read_results
from studies_parts.rows import ORDER, TABLES, Form

MARKED = re.compile(r"(<!-- (?P<name>[a-z0-9-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
SUMMARY = "summary"


HEAD = ("study", "row", "form", "paper", "R@1 / 5 / 20", "MRR", "LV", "PPL", "cosine", "note")


def write_report(results_path, page, rows_path):
    """Write the results between the page's markers, and rows_path; raise ValueError for a study without markers."""
    results = read_results(results_path)
    text = page.read_text(encoding="utf-8")
    names = {match["name"] for match in MARKED.finditer(text)}
    missing = {SUMMARY, *TABLES} - names
    if missing:
        raise ValueError(f"{page}: no marked place for {', '.join(sorted(missing))}")
    made = {SUMMARY: summary(results)} | {study: study_text(study, results) for study in TABLES}
    written = MARKED.sub(lambda match: f"{match[1]}\n{made[match['name']]}\n\n{match[3]}", text)
    page.write_text(written, encoding="utf-8")
    with open(rows_path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(HEAD)
        for study in TABLES:
            writer.writerows(_rows(study, [result for result in results if result["study"] == study]))


def summary(results):
    """Return the environment of the runs and the number of claims by verdict."""
    if not results:
        return "No results yet."
    counts = Counter(verdict for study in TABLES for _, _, verdict, *_ in judged(study, results))
    versions = (f"{name} {_joined(result['versions'][name] for result in results)}" for name in results[0]["versions"])
    named = {name: _joined(result[name] for result in results) for name in ("seed", "steps", "date", "cpu")}
    verdicts = (f"{counts[verdict]} {verdict.value}" for verdict in Verdict if verdict is not Verdict.NOT_RUN)
    return (
        f"{len(results)} rows, {len({result['settings_hash'] for result in results})} settings; seed {named['seed']}; "
        f"{named['steps']} steps; {named['date']}; {named['cpu']}; {', '.join(versions)}.\n\n"
        f"Claims, by form: {', '.join(verdicts)}. Without a verdict, for want of a row or of the measure: "
        f"{counts[Verdict.NOT_RUN]}."
    )


def study_text(study, results):
    """Return what a study measured beside recall, and claims with their verdicts."""
    own = [result for result in results if result["study"] == study]
    if not own:
        return "Not run."
    parts = [_curves(own)] if "curves" in own[0] else [_single_views(own), _attention(own), _answer_views(own)]
    claims = [one for one in judged(study, results) if one[2] is not Verdict.NOT_RUN]
    if claims:
        parts.append(_claims(claims))
    return "\n\n".join(filter(None, parts))


def judged(study, results):
    """Return claim, form, verdict, evidence, and both at R@1 where the claim is of R@5, in each form with rows."""
    found = []
    for size, form in _groups(results, study):
        rows = _by_name(results, study, size, form)
        is_papers = form == Form.PAPER.value
        for claim in (one for one in CLAIMS if one.study == study and (is_papers or not one.of_papers_form)):
            verdict, rests_on = judge(claim, rows)
            is_recall = all(getattr(test, "higher", None) and test.metric == "R@5" for test in claim.tests)
            at_first = judge(claim, rows, "R@1") if is_recall else (None, [])
            found.append((claim, _form_name(size, form), verdict, rests_on, *at_first))
    return found


def _rows(study, own):
    """Yield the rows of a study's table, those that were not run last."""
    for size, form in () if own and "curves" in own[0] else _groups(own, study):
        rows = _by_name(own, study, size, form)
        for line in TABLES[study]:
            if line.name in rows:
                yield (study, line.name, *_row(line, _form_name(size, form), rows[line.name]))
    for name, form in _not_run(study, own):
        yield (study, name, form, *[""] * (len(HEAD) - 4), "not run")


def _row(line, form, results):
    recall = " / ".join(f"{np.mean(values(results, f'R@{k}')):.1f}" for k in (1, 5, 20))
    mrr = np.mean(values(results, "MRR"))
    spread = [_mean(results, "LV", 3), _mean(results, "PPL", 2)]
    cosines = [result["view_cosine"] for result in results]
    cosine = "-" if None in cosines else f"{np.mean(cosines):.3f}"
    paper = "; ".join(f"{name} {value:g}" for name, value in line.paper.items()) or "-"
    labels = _joined(result["label"] for result in results if result["label"])
    return form, paper, recall, f"{mrr:.1f}", *spread, cosine, labels


def _single_views(own):
    asked = [result for result in own if result.get("single_views")]
    if not asked:
        return ""
    lines = ["Each view alone, R@5 (of the documents that have it, where not all do):", ""]
    for result in asked:
        views = result["single_views"]
        most = views[0]["documents"]
        shown = (
            f"{100 * view['R@5']:.1f}" + (f" ({view['documents']})" if view["documents"] < most else "")
            for view in views
        )
        lines.append(f"- {_title(result)}: {', '.join(shown)}; all views {100 * result['R@5']:.1f}")
    return "\n".join(lines)


def _attention(own):
    asked = [result for result in own if result.get("attention_kl")]
    if not asked:
        return ""
    lines = ["KL of two viewers' attention in the last layer, least / mean / greatest pair:", ""]
    for result in asked:
        found = result["attention_kl"]
        # Adding 0 makes 0 of the -0 that rounding may leave.
        shown = (f"{found[name] + 0.0:.4f}" for name in ("least", "mean", "greatest"))
        lines.append(f"- {_title(result)}: {' / '.join(shown)}")
    return "\n".join(lines)


def _answer_views(own):
    asked = [result for result in own if result.get("answer_view_ranks")]
    if not asked:
        return ""
    lines = ["Answer view accuracy at 1 / 5 / 20 (CAMVR eq. 15), beside R@1 / 5 / 20 of the passage:", ""]
    for result in asked:
        shares = [
            " / ".join(f"{np.mean(values([result], f'{name}@{k}')):.1f}" for k in (1, 5, 20)) for name in ("AV", "R")
        ]
        lines.append(f"- {_title(result)}: {shares[0]} beside {shares[1]}")
    return "\n".join(lines)


def _curves(own):
    lines = ["| views | form | step | greatest r | variance of r |", "| --- | --- | --- | --- | --- |"]
    for result in own:
        for views, points in result["curves"].items():
            for point in points:
                lines.append(
                    f"| {views} | {_form_name(result['size'], result['form'])} | {point['step']} "
                    f"| {point['greatest']:.3f} | {point['variance']:.4f} |"
                )
    return "\n".join(lines)


def _claims(claims):
    lines = [
        "| the paper | its figures | form | ours | verdict | at R@1 | verdict |",
        "| " + " | ".join(["---"] * 7) + " |",
    ]
    for claim, form, verdict, rests_on, first, first_rests_on in claims:
        shown, at_first = (", ".join(map(_show, found)) or "-" for found in (rests_on, first_rests_on))
        word = first.value if first else "-"
        lines.append(f"| {claim.words} | {claim.figures} | {form} | {shown} | {verdict.value} | {at_first} | {word} |")
    return "\n".join(lines)


def _not_run(study, own):
    """Yield name and form of each row without a result."""
    done = {(result["row"], result["form"]) for result in own}
    for form in sorted({form.value for pattern, form in ORDER if pattern.partition("/")[0] == study}):
        yield from ((line.name, form) for line in TABLES[study] if (line.name, form) not in done)


def _groups(results, study):
    """Return the pairs of size and form with rows of the study, paper form first."""
    forms = [form.value for form in Form]
    found = {(result["size"], result["form"]) for result in results if result["study"] == study}
    return sorted(found, key=lambda pair: (pair[0], forms.index(pair[1])))


def _by_name(results, study, size, form):
    """Return results by the row's name, a list over seeds each."""
    rows = defaultdict(list)
    for result in results:
        if (result["study"], result["size"], result["form"]) == (study, size, form):
            rows[result["row"]].append(result)
    return rows


def _form_name(size, form):
    return form if size == "small" else f"{form}, {size} size"


def _title(result):
    return f"{result['row']} ({_form_name(result['size'], result['form'])} form)"


def _mean(results, metric, digits):
    found = values(results, metric)
    return "-" if np.isnan(found).all() else f"{np.nanmean(found):.{digits}f}"


def _show(found):
    if found is None:
        return "-"
    if isinstance(found, Difference):
        digits = 1 if found.error >= 0.1 or not found.error else 1 - math.floor(math.log10(found.error))
        return f"{found.mean:+.{digits}f} ± {found.error:.{digits}f}"
    return f"{found:.3g}"


def _joined(found):
    return ", ".join(sorted({str(one) for one in found}, key=lambda text: (len(text), text)))

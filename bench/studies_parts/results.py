"""The results file: one JSON object a row, form, size and seed."""

import json


def read_results(path):
    """Return the results of the file, the last one of a row and seed; none when there is no file."""
    if not path.exists():
        return []
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return list({(row["study"], row["row"], row["form"], row["seed"], row["size"]): row for row in rows}.values())


def is_done(results, row, plan, key):
    """Return whether the results contain the row at this size and seed with the settings of this hash."""
    key_of_row = (row.study, row.name, row.form.value, plan.seed, plan.size.value, key)
    names = ("study", "row", "form", "seed", "size", "settings_hash")
    return any(tuple(result[name] for name in names) == key_of_row for result in results)

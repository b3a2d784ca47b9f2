"""The figures of a run: added up over processes, and as lines of text."""

import json
from pathlib import Path

KINDS = ("inputs", "accepted", "refused", "crash", "wrong", "hang", "memory")


def empty(name: str, engine: str) -> dict:
    return {"target": name, "engine": engine, **dict.fromkeys(KINDS, 0), "deaths": 0, "slowest_ms": 0.0,
            "peak_mib": 0.0, "faults": {}}  # fmt: skip


def add(total: dict, path: Path, begun: int) -> None:
    """Add the figures of one process, whose report may be some inputs behind, to the total."""
    total["inputs"] += begun
    if not path.exists():
        return
    found = json.loads(path.read_text(encoding="utf-8"))
    for kind in KINDS[1:]:
        total[kind] += found["counts"].get(kind, 0)
    for name in ("slowest_ms", "peak_mib"):
        total[name] = max(total[name], found[name])
    for key, fault in found["faults"].items():
        if key in total["faults"]:
            total["faults"][key]["count"] += fault["count"]
        else:
            total["faults"][key] = fault


def add_death(total: dict, what: str, log: str, file: str, is_stuck: bool) -> None:
    """Add a process that ended early to the total."""
    total["deaths"] += 1
    total["hang" if is_stuck else "crash"] += 1
    fault = {"kind": "hang" if is_stuck else "crash", "what": what, "place": "?", "count": 1, "files": [file]}
    total["faults"][f"death {total['deaths']}"] = {**fault, "trace": log}


def as_line(row: dict) -> str:
    faults = ", ".join(f"{row[kind]} {kind}" for kind in KINDS[3:] if row[kind]) or "no fault"
    rate = row["inputs"] / max(row["seconds"], 0.1)
    text = (
        f"{row['target']:22} {row['engine']:10} {row['inputs']:>9,} inputs {row['refused']:>9,} refused "
        f"{row['accepted']:>9,} accepted  slowest {row['slowest_ms']:>7.1f} ms  peak +{row['peak_mib']:>6.1f} MiB "
        f"{rate:>7,.0f}/s  {faults}"
    )
    for fault in row["faults"].values():
        files = " ".join(fault.get("files", [])[:1])
        text += f"\n    {fault['count']} x {fault['kind']} at {fault['place']}: {fault['what']:.300} [{files}]"
    return text


def summary(rows: list[dict]) -> str:
    totals = {kind: sum(row[kind] for row in rows) for kind in KINDS}
    seconds = sum(row["seconds"] for row in rows)
    return f"in all: {', '.join(f'{count:,} {kind}' for kind, count in totals.items())} in {seconds:,.0f} s"

"""The command `mvindex families`."""

from __future__ import annotations

from mvindex.cli.output import JsonOption, Output, OutputOption, print_rows
from mvindex.cli.terminal import print_json


def families(output: OutputOption = Output.TABLE, as_json: JsonOption = False) -> None:
    """List the families of encoders: the ways to make views of a document.

    A family with weights of its own needs an encoder trained so; the others fit any encoder, by `--family NAME`.

    Example: mvindex families
    """
    from mvindex.encoder.checkpoint.families import families as known

    rows = [
        {
            "family": family.name,
            "max_views": family.default_max_views,
            "weights": "its own" if family.is_trained else "any",
            "spans": family.has_spans,
            "a_view_is": family.summary,
        }
        for family in known()
    ]
    if output is Output.JSON:
        for row in rows:
            print_json(row)
        return
    header = [name.replace("_", " ") for name in rows[0]]
    print_rows("families", header, [list(map(str, row.values())) for row in rows], output, is_text=True)

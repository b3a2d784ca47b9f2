#!/bin/sh
# mvindex's MVR against lightning-ir's: docs/explanation/crosscheck.md. Exits 1 where they differ by more than 1e-5.
# In a virtual environment of its own, since lightning-ir's tokenizers do not load under transformers 5.
set -eu
cd "$(dirname "$0")/../.."
VENV=build/crosscheck-venv
if [ ! -e "$VENV/.ready" ]; then
    "${PYTHON:-python3}" -m venv "$VENV"
    "$VENV/bin/python" -m pip install --quiet --constraint constraints.txt torch lightning-ir==0.0.6 'transformers<5'
    # What is installed holds: mvindex must fit beside it.
    "$VENV/bin/python" -m pip freeze > "$VENV/versions.txt"
    "$VENV/bin/python" -m pip install --quiet --constraint "$VENV/versions.txt" --editable '.[train]'
    touch "$VENV/.ready"
fi
exec "$VENV/bin/python" bench/crosscheck/mvr.py

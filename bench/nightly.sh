#!/bin/sh
# All studies of the papers, then their report. Usage: bench/nightly.sh DATA OUT [SEEDS] [SIZE]
#   DATA: contains squad/ (bench/squad_splits.py); OUT: checkpoints, measures and logs; SEEDS: "0" or "0 1 2"; SIZE: small or full.
# What the results file has is not run again. Exit 0 when all ran; else 1, with the failed commands in OUT/failed.
set -u
if [ $# -lt 2 ]; then
    echo "usage: $0 DATA OUT [SEEDS] [SIZE]" >&2
    exit 2
fi
data=$1 out=$2 seeds=${3:-0} size=${4:-small}
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
python=${PYTHON:-python}
logs=$out/logs
mkdir -p "$logs" || exit 1
: > "$out/failed"

attempt() {
    # $1: name of the log; the rest: the command
    log=$logs/$1.$(date +%Y%m%dT%H%M%S).log
    shift
    if "$@" > "$log" 2>&1; then
        echo "done: $*"
    else
        echo "failed ($?): $*; see $log" | tee -a "$out/failed" >&2
    fi
}

for seed in $seeds; do
    # A study at a time: one that fails does not keep the others from running.
    for study in $("$python" "$here/studies.py" --list | sed 's,/.*,,' | awk '!seen[$0]++'); do
        attempt "$study.seed-$seed" "$python" "$here/studies.py" --data "$data" --out "$out" --only "$study" \
            --seed "$seed" --size "$size"
    done
done
attempt report "$python" "$here/studies.py" --report
[ ! -s "$out/failed" ]

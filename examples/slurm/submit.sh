#!/bin/bash
# The three jobs, one after the other; the index must lie where all nodes see it.
#
#   ./submit.sh corpus.tsv corpus.mvx 16 ivf-pq
set -euo pipefail
here=$(dirname "$0")
corpus=$(realpath "$1") index=$(realpath -m "$2") shards=$3 kind=$4
array=0-$((shards - 1))

ingest=$(sbatch --parsable --array="$array" "$here/ingest.sbatch" "$corpus" "$index" "$shards")
assemble=$(sbatch --parsable --dependency="afterok:$ingest" "$here/assemble.sbatch" "$index" "$kind")
sbatch --dependency="afterok:$assemble" --array="$array" "$here/build.sbatch" "$index" "$kind"

#!/usr/bin/env bash
# Runs every figure and writes its tables and plots: what docs/performance.md shows. More than an hour on two cores; nothing
# else should run meanwhile.
#
#   scripts/figures.sh DIR OUT [FIGURE...]
#
# DIR is on the disk to be measured, OUT gets NAME.json, NAME.md, NAME.html and the plots of each figure, and page.html with
# all of them. Needs bench-peers (docs/benchmarks.md): cargo build --release -p bench-peers
set -euo pipefail

[ $# -ge 2 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
dir=$1 out=$2
shift 2
bench=$(dirname "$0")/../target/release/bench-peers
[ -x "$bench" ] || { echo "$0: $bench is missing: cargo build --release -p bench-peers" >&2; exit 1; }
mkdir -p "$out"

figures=("$@")
if [ ${#figures[@]} -eq 0 ]; then
    figures=(flush-figure5a peers flashtkv-figure6a flashtkv-figure5 slides-tpcb wisckey-figure5 flashtkv-figure7
        flush-figure5b flush-figure6 flush-table1 slides-linkbench slides-ycsb slides-polling niosit-figure9
        flashtkv-figure6b flashtkv-table7 delete-queue-over-time overwrite-over-time wisckey-figure6)
fi

failed=()
for figure in "${figures[@]}"; do
    echo "== $figure" >&2
    # A figure of which one engine fails has the others all the same.
    "$bench" "$figure" "$dir" --out "$out" >/dev/null || failed+=("$figure")
done
reports=()
for figure in "${figures[@]}"; do
    if [ -f "$out/$figure.json" ]; then reports+=("$out/$figure.json"); fi
done
"$bench" page --out "$out/page.html" "${reports[@]}"
echo "wrote $out/page.html" >&2
[ ${#failed[@]} -eq 0 ] || { echo "with failures: ${failed[*]}" >&2; exit 1; }

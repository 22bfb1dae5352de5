#!/bin/sh
# Durable commits a second, Fulgurite beside RocksDB: one insert of 20 + 100 bytes a transaction, threads that wait.
# Both engines take turns, round after round, so that a slow minute of the machine hits both; the medians and their
# ratio stand at the end.
#
#   scripts/commits-vs-rocksdb.sh DIR [ROUNDS [THREADS...]]
#
# DIR is on the disk to be measured. Needs db_bench (Debian: rocksdb-tools) and a release build of Fulgurite:
#   cargo build --release
set -eu

usage() {
    echo "usage: $0 DIR [ROUNDS [THREADS...]]" >&2
    exit 2
}

[ $# -ge 1 ] || usage
dir=$1
rounds=${2:-3}
[ $# -ge 2 ] && shift 2 || shift 1
[ $# -gt 0 ] || set -- 1 8 16 32 64 128
[ -d "$dir" ] || { echo "$0: $dir is not a directory" >&2; exit 1; }
command -v db_bench >/dev/null || { echo "$0: db_bench is missing; on Debian: apt-get install rocksdb-tools" >&2; exit 1; }
fulgurite=$(dirname "$0")/../target/release/fulgurite
[ -x "$fulgurite" ] || { echo "$0: $fulgurite is missing; run: cargo build --release" >&2; exit 1; }

results=$(mktemp)
scratch=$(mktemp -d "$dir/commits-vs-rocksdb.XXXXXX")
trap 'rm -rf "$scratch" "$results"' EXIT INT TERM

rocksdb() {
    db_bench --benchmarks=fillrandom --sync=1 --threads="$1" --num="$((60000 / $1 + 500))" --key_size=20 \
        --value_size=100 --compression_type=none --db="$scratch/rocksdb" 2>/dev/null |
        awk '/^fillrandom/ { print $5 }'
    rm -rf "$scratch/rocksdb"
}

# Commits a second, then the 50th and 99th percentile in microseconds, processor microseconds a commit, CPU idle.
fulgurite() {
    "$fulgurite" bench commit "$scratch" --threads "$1" --seconds 2 --rounds 1 --scheme combined 2>/dev/null |
        awk '$2 == "combined" { gsub(",", ""); n++; if (n == 1) rate = $3; if (n == 2) print rate, $3, $4, $7, $8 }'
}

round=0
while [ "$round" -lt "$rounds" ]; do
    round=$((round + 1))
    for threads in "$@"; do
        echo "rocksdb $threads $(rocksdb "$threads")" >>"$results"
        echo "fulgurite $threads $(fulgurite "$threads")" >>"$results"
        tail -n 2 "$results" | tr '\n' '\t' && echo
    done
done

echo
echo "threads  rocksdb/s  fulgurite/s  ratio  p50 us  p99 us  cpu us  idle %   (medians of $rounds rounds)"
for threads in "$@"; do
    median() { # ENGINE COLUMN
        awk -v e="$1" -v t="$threads" -v c="$2" '$1 == e && $2 == t { print $c }' "$results" | sort -g |
            awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
    }
    echo "$threads $(median rocksdb 3) $(median fulgurite 3) $(median fulgurite 4) $(median fulgurite 5) \
        $(median fulgurite 6) $(median fulgurite 7)" |
        awk '{ printf "%7d  %9d  %11d  %5.2f  %6d  %6d  %6.1f  %6d\n", $1, $2, $3, $3 / $2, $4, $5, $6, $7 }'
done

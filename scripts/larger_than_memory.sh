#!/bin/sh
# A database of GIB (10) in a memory budget of BUDGET_MIB (1024), in a control group of a quarter more, page cache included, where
# cgroup v1 can be had: rows of 100 bytes, and values of 100 bytes to 64 KiB. Each phase takes SECONDS (300). Then it kills a load of
# overwrites and opens again; and as root it overwrites on a disk that is throttled to writes of 20 MB/s.
# Usage: scripts/larger_than_memory.sh DIR [GIB [BUDGET_MIB [SECONDS [rows|values]]]]
set -eu
cd "$(dirname "$0")/.."
dir=$1 gib=${2:-10} budget=${3:-1024} seconds=${4:-300} kinds=${5:-rows values}
# A quarter more, or a tenth more and what the process takes beside it.
limit=$((budget * 5 / 4 > budget * 11 / 10 + 80 ? budget * 5 / 4 : budget * 11 / 10 + 80))
cargo build --release -q -p fulgurite --example larger_than_memory
program=target/release/examples/larger_than_memory
mkdir -p "$dir"
group=/sys/fs/cgroup/memory/fulgurite-larger-than-memory
if mkdir -p "$group" 2>/dev/null; then
    echo "${limit}M" >"$group/memory.limit_in_bytes"
    trap 'rmdir "$group" || true' EXIT
else
    echo "== no control group: needs root, and the controller memory of cgroup v1"
    group=
fi
# A shell in the group becomes the program.
run() {
    sh -c '[ -z "$1" ] || echo $$ >"$1/cgroup.procs"; shift; exec "$@"' sh "$group" "$program" "$@"
}
for kind in $kinds; do
    echo "== $gib GiB of $kind, budget $budget MiB, control group $limit MiB"
    run "$dir/$kind" "$kind" "$gib" "$budget" "$seconds" load open read overwrite beside
    run "$dir/$kind" "$kind" "$gib" "$budget" 60 overwrite >/dev/null &
    sleep 20
    pkill -9 -f "^$program $dir/$kind " || true
    wait $! || true
    echo "== after kill -9"
    run "$dir/$kind" "$kind" "$gib" "$budget" "$seconds" open
    limits=/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device
    if [ "$(id -u)" = 0 ] && [ -w "$limits" ] && device=$(findmnt -no MAJ:MIN -T "$dir"); then
        echo "== 20 MB/s"
        device=$(echo "$device" | tr -d ' ')
        echo "$device 20000000" >"$limits"
        run "$dir/$kind" "$kind" "$gib" "$budget" "$seconds" overwrite || true
        echo "$device 0" >"$limits"
    fi
    rm -rf "${dir:?}/$kind"
done

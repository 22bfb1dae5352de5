#!/usr/bin/env bash
# Counts the instructions of each operation, on one thread, with valgrind: a figure that other load does not change, to
# compare two builds by. It says nothing of waits: not of memory, locks or the disk.
#
#   scripts/instructions.sh [OPERATION...]    put load transaction queue get short-scan long-scan reverse-scan
#
# Profiles are left in target/instructions, for callgrind_annotate.
set -euo pipefail
cd "$(dirname "$0")/.."
target="${CARGO_TARGET_DIR:-target}/instructions"
# valgrind hides the page of the kernel that rustix reads the clock from.
RUSTFLAGS="--cfg=rustix_use_libc" cargo build --quiet --release -p fulgurite --example instructions --target-dir "$target"
declare -A counts=(
    [put]=5000 [load]=200 [transaction]=2000 [queue]=2000 [get]=20000 [short-scan]=1000
    [long-scan]=5 [reverse-scan]=5
)
[ $# -gt 0 ] || set -- put load transaction queue get short-scan long-scan reverse-scan
for operation in "$@"; do
    count="${counts[$operation]:?there is no operation $operation}"
    dir="$(mktemp -d "$target/db.XXXXXX")"
    output="$(valgrind --tool=callgrind --collect-atstart=no --toggle-collect=counted \
        --callgrind-out-file="$target/$operation.callgrind" \
        "$target/release/examples/instructions" "$operation" "$dir" "$count" 2>&1)" || {
        printf '%s\n' "$output" >&2
        exit 1
    }
    rm -rf "$dir"
    collected="$(sed -n 's/.*Collected : //p' <<<"$output")"
    printf '%-12s %10d instructions an operation\n' "$operation" "$((collected / count))"
done

#!/bin/sh
# A tour of the command line: loads, queries, kills a load with kill -9, and counts what that lost.
# It needs cargo and the usual Unix tools, works in a temporary directory and removes it.
set -eu

cd "$(dirname "$0")/.."
echo "Building; the first time that takes a few minutes."
cargo build --release -p fulgurite-cli
fulgurite="$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release/fulgurite"
dir="$(mktemp -d)"
trap 'rm -rf "$dir"' EXIT
db="$dir/db"

say() { printf '\n# %s\n' "$*"; }
run() {
    printf '$ fulgurite %s\n' "$*"
    "$fulgurite" "$@"
}

say "Load a file whose first line names the columns; the key is the first column, the value is the rest."
run load --header "$db" elements examples/elements.tsv

say "Read one key, a prefix, the end of the table."
run get "$db" elements Au
echo
run scan "$db" elements --prefix N
run scan "$db" elements --reverse --limit 2

say "Load 3,000,000 rows, and kill that with kill -9 once it has reported 200,000 of them as durable."
awk 'BEGIN { for (row = 1; row <= 3000000; row++) printf "%07d\tvalue of row %d\n", row, row }' > "$dir/rows.tsv"
"$fulgurite" load --json "$db" rows "$dir/rows.tsv" > "$dir/progress" &
load=$!
reported=0
while [ "$reported" -lt 200000 ] && kill -0 "$load" 2> "$dir/ignored"; do
    reported="$(sed -n '$s/.*"durable_rows":\([0-9]*\).*/\1/p' "$dir/progress")"
    reported="${reported:-0}"
done
kill -9 "$load" 2> "$dir/ignored" || echo "(it had finished before the kill)"
wait "$load" 2> "$dir/ignored" || true
reported="$(sed -n '$s/.*"durable_rows":\([0-9]*\).*/\1/p' "$dir/progress")"
echo "killed; the last report said that $reported rows are durable"

say "Open the database again, which recovers it, and look for the reported rows."
run export --raw "$db" rows "$dir/found.tsv"
head -n "$reported" "$dir/rows.tsv" > "$dir/expected.tsv"
echo "rows found:    $(wc -l < "$dir/found.tsv")"
missing="$(LC_ALL=C comm -23 "$dir/expected.tsv" "$dir/found.tsv" | wc -l)"
echo "rows reported: $reported, of which missing: $missing"

say "Scan again, and verify the whole database."
run scan "$db" rows --limit 3
run check "$db"

[ "$missing" -eq 0 ]

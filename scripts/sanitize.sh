#!/usr/bin/env bash
# The tests under a sanitizer; needs nightly Rust.
#
#   scripts/sanitize.sh address    all tests
#   scripts/sanitize.sh thread     the tests of threads
#
# The standard library is not instrumented. So ThreadSanitizer does not see what its locks and channels order, and
# reports races that are none: scripts/tsan.supp names these, and why. What is left is a hint.
set -euo pipefail
cd "$(dirname "$0")/.."
target=x86_64-unknown-linux-gnu
case "${1:-}" in
address)
    # A crash test leaves the threads and the memory of the process that it stops.
    export RUSTFLAGS="-Zsanitizer=address" ASAN_OPTIONS="detect_leaks=0"
    # Its allocator has locks of its own, which show up among a commit's system calls.
    cargo +nightly test --target "$target" --lib --bins --tests -- --skip one_thread_around --skip one_thread_through
    ;;
thread)
    export RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer"
    # Two threads that panic, as tests have them do, would take turns printing by a lock that is not seen either.
    export RUST_BACKTRACE=0
    export TSAN_OPTIONS="suppressions=$PWD/scripts/tsan.supp halt_on_error=1 history_size=4"
    cargo +nightly test --target "$target" -p fulgurite-index --lib threads
    cargo +nightly test --target "$target" -p fulgurite-index --test btree threads
    cargo +nightly test --target "$target" -p fulgurite-log --test log threads
    cargo +nightly test --target "$target" -p fulgurite --lib isolation_tests
    cargo +nightly test --target "$target" -p fulgurite --test crash_threads --test maintenance
    ;;
*)
    echo "usage: $0 address|thread" >&2
    exit 2
    ;;
esac

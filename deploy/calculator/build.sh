#!/usr/bin/env bash
# Builds the calculator: one static page with the accountant in it. build.sh FILE
# It needs Rust's target wasm32-wasip1 (rustup target add wasm32-wasip1); ends with 77 where that is missing.
set -euo pipefail
[ $# -ge 1 ] || { echo "usage: deploy/calculator/build.sh FILE" >&2; exit 2; }
out=$(realpath -m "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
triple=wasm32-wasip1

if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$triple" ]; then
    echo "SKIPPED: Rust's target $triple is not installed: rustup target add $triple" >&2
    exit 77
fi
# No debug information, and every function where it is called: a page is loaded more often than built.
CARGO_PROFILE_RELEASE_DEBUG=0 CARGO_PROFILE_RELEASE_SPLIT_DEBUGINFO=off CARGO_PROFILE_RELEASE_LTO=fat CARGO_PROFILE_RELEASE_PANIC=abort \
    cargo build --quiet --locked --release --target "$triple" --target-dir "$target/calculator" -p dp-pvi-exchange
program=$target/calculator/$triple/release/dp-pvi-calculator.wasm
mkdir -p "$(dirname "$out")"
{
    sed '/@PROGRAM@/,$d' deploy/calculator/page.html
    # The line of the program, in three parts: it is too long for a command's arguments.
    sed -n '/@PROGRAM@/{s/@PROGRAM@.*//;p}' deploy/calculator/page.html | tr -d '\n'
    base64 -w 0 "$program"
    sed -n '/@PROGRAM@/{s/.*@PROGRAM@//;p}' deploy/calculator/page.html
    sed '1,/@PROGRAM@/d' deploy/calculator/page.html
} >"$out.part"
mv "$out.part" "$out"
echo "$out: $(stat -c %s "$out") bytes, of which the program is $(stat -c %s "$program")"

#!/usr/bin/env bash
# Builds the site engine, runs its tests, and a federation in which one site is a cluster. Its dependencies are many: ends with 77 and a sentence where they cannot be fetched.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root/common/engine"
target=$(realpath -m "${CARGO_TARGET_DIR:-$root/target}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if ! cargo fetch --locked >"$work/log" 2>&1; then
    tail -n 3 "$work/log"
    # A lock file or a manifest that does not fit is a fault of the tree.
    grep -qE "lock file|manifest|--locked" "$work/log" && exit 1
    echo "SKIPPED: ############ crates of the site engine cannot be fetched: it was NOT tested ############"
    exit 77
fi
cargo fmt --check
export CARGO_TARGET_DIR=$target/engine
cargo clippy --release --locked --all-targets -- -D warnings
cargo test --release --locked
cargo build --release --locked
(cd "$root" && CARGO_TARGET_DIR=$target cargo build --release --locked -p dp-pvi-server -p dp-pvi-client -p dp-pvi-simulation --bins)
PATH=$target/engine/release:$target/release:$PATH ./federation.sh "$work/federation"

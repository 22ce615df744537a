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

# Builds that take longer than DP_PVI_ENGINE_SECONDS together are given up with a sentence; tests that hang are a failure.
limit=${DP_PVI_ENGINE_SECONDS:-3600}
built() {
    local status=0
    timeout $((limit > SECONDS ? limit - SECONDS : 1)) "$@" || status=$?
    if [ $status -eq 124 ]; then
        echo "SKIPPED: ############ the site engine was not built within $limit s: NOT everything of it was tested ############"
        exit 77
    fi
    return $status
}
built cargo build --locked --all-targets
timeout 900 cargo test --locked
(cd "$root" && CARGO_TARGET_DIR=$target cargo build --locked --bins)
PATH=$target/engine/debug:$target/debug:$PATH timeout 600 ./federation.sh "$work/federation"
built cargo clippy --locked --all-targets -- -D warnings

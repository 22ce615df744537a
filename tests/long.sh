#!/usr/bin/env bash
# The long tier: what proves a statistic by thousands of runs, or tries everything where the quick tests try a part.
#
#   tests/long.sh --list         # each name with its limit in seconds and the folders that it is about
#   tests/long.sh NAME…          # runs these, one after the other; without a name, all of them
#
# The gate (.ci/run) runs a name where a commit touched its folders. Ends with 77 and a sentence where something that it needs cannot be had.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# name | limit in seconds | what it is about; nothing: where it is asked for, and on the schedule
tier='
coverage     | 1200 | common/papers/src/synthetic common/posterior/src/methods common/inference/src/methods common/models/src common/math/src
carried      | 900  | common/inference/src/methods common/models/src common/privacy/src/mechanism common/posterior/src/methods
audit        | 1500 | common/simulation/src/audit common/inference/src/methods common/models/src common/privacy/src/mechanism
certificates | 300  | common/results/src/account common/verifier common/accounting/src
grids        | 600  | common/accounting/src
injected     | 1800 | common/privacy/src common/accounting/src common/simulation/src/audit
bytes        | 300  | common/privacy/src/ledger common/programs/src/ledger
conformance  | 600  | common/data common/schema/src/text.rs common/schema/src/dates.rs common/schema/src/csv.rs
crashes      | 900  | client/src common/protocol/src/participant common/privacy/src/ledger common/programs/src/ledger
faults       | 900  | common/protocol common/simulation/src common/privacy/src/ledger common/programs/src/ledger
rollbacks    | 1800 |
secagg       | 3600 |
fuzz         | 3600 |
descriptions | 1500 | client/src/database
engine       | 3000 | common/engine common/privacy/src/partial_sums.rs common/inference/src/methods/partial_sums.rs common/inference/src/methods/public_job.rs common/data/src/blocks.rs client/src/engine
'

# With the features and the profile of all other tests, so that nothing is built twice.
run() {
    case $1 in
    coverage) cargo test --locked --workspace --lib -- --ignored --nocapture coverage:: ;;
    carried) cargo test --locked --workspace --lib -- --ignored carried:: ;;
    audit) cargo test --locked --workspace --test simulation -- --ignored audit:: ;;
    grids) cargo test --locked --workspace --lib -- --ignored whole_grid ;;
    certificates) cargo test --locked --workspace --lib -- --ignored certificate:: ;;
    # Every fault of dp_pvi_privacy::injected is seen, the shipped code is not flagged. DP_PVI_AUDIT_RUNS=20 for the full count.
    injected)
        cargo clippy --locked -p dp-pvi-privacy --features fault-injection --lib -- -D warnings
        cargo test --locked -p dp-pvi-simulation --features fault-injection --test injected -- --nocapture
        ;;
    bytes) cargo test --locked --workspace --lib -- --ignored changed_byte ;;
    conformance) common/data/tests/conformance/run.sh ;;
    crashes) DP_PVI_CRASH_SEEDS=${DP_PVI_CRASH_SEEDS:-40} cargo test --locked --workspace --test federation -- crash:: ;;
    faults) DP_PVI_FAULT_SEEDS=${DP_PVI_FAULT_SEEDS:-1000} cargo test --locked --workspace --test simulator -- faults:: --nocapture ;;
    rollbacks) DP_PVI_ROLLBACKS=${DP_PVI_ROLLBACKS:-100} cargo test --locked --workspace --test federation -- budget:: ;;
    secagg) cargo test --locked --workspace --test secagg -- --ignored ;;
    descriptions) DP_PVI_DESCRIPTIONS=${DP_PVI_DESCRIPTIONS:-10000} cargo test --locked --workspace --test federation -- descriptions:: --nocapture ;;
    fuzz) fuzz ;;
    engine) common/engine/test.sh ;;
    esac
}

# Every decoder for half a minute under coverage guidance, from the corpus of the tree; `tests/fuzz/run.sh` takes ten minutes for each.
fuzz() {
    local tools=$PWD/${CARGO_TARGET_DIR:-target}/tools version=0.13.2
    if ! "$tools/bin/cargo-fuzz" --version 2>/dev/null | grep -qF "$version" &&
        ! cargo install --quiet --locked cargo-fuzz --version "=$version" --root "$tools" --target-dir "$tools/build"; then
        echo "SKIPPED: ############ cargo-fuzz $version cannot be installed: no decoder was fuzzed ############"
        exit 77
    fi
    rm -rf "$tools/build"
    PATH="$tools/bin:$PATH" tests/fuzz/run.sh 30
    rm -rf tests/fuzz/target
}

rows() { grep '|' <<<"$tier" | sed 's/ *| */|/g'; }

case ${1:-} in
--list)
    rows
    exit 0
    ;;
esac
[ $# -gt 0 ] || mapfile -t names < <(rows | cut -d'|' -f1)
[ $# -eq 0 ] || names=("$@")
for name in "${names[@]}"; do
    rows | grep -q "^$name|" || { echo "tests/long.sh: there is no $name; --list names all" >&2; exit 2; }
done
for name in "${names[@]}"; do
    limit=$(rows | grep "^$name|" | cut -d'|' -f2)
    began=$SECONDS status=0
    printf '=== %s (at most %s s)\n' "$name" "$limit"
    if [ -z "${DP_PVI_LONG_INSIDE:-}" ]; then
        DP_PVI_LONG_INSIDE=1 timeout "$limit" "$0" "$name" || status=$?
    else
        run "$name" || status=$?
    fi
    [ $status -eq 0 ] || { echo "--- $name: ended with $status after $((SECONDS - began)) s"; exit $status; }
    printf -- '--- %s: %d s\n' "$name" $((SECONDS - began))
done

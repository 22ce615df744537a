#!/usr/bin/env bash
# Looks for inputs that break a decoder, under coverage guidance: `tests/fuzz/run.sh [SECONDS] [TARGET…]`, by default 600 seconds for every
# target, one after the other. Needs cargo-fuzz (`cargo install cargo-fuzz`) and the stable compiler. New inputs go to tests/fuzz/corpus/TARGET, which
# the ordinary tests read; one that broke something is kept in tests/fuzz/artifacts/TARGET, and the script ends with its exit code.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seconds=${1:-600}
[ $# -gt 0 ] && shift
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    mapfile -t targets < <(cd tests/fuzz/fuzz_targets && printf '%s\n' *.rs | sed 's/\.rs$//')
fi
for target in "${targets[@]}"; do
    # The target writes its valid inputs there first.
    export DP_PVI_FUZZ_CORPUS="$PWD/tests/fuzz/corpus/$target"
    mkdir -p "$DP_PVI_FUZZ_CORPUS"
    printf '=== %s: %s s\n' "$target" "$seconds"
    cargo fuzz run --release --fuzz-dir tests/fuzz --sanitizer none "$target" "$DP_PVI_FUZZ_CORPUS" -- \
        -max_total_time="$seconds" -rss_limit_mb=4096 -timeout=60 -print_final_stats=1
done

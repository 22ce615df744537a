#!/usr/bin/env bash
# Builds the wheel, installs it into a fresh environment, runs its tests and its tutorial, and compares its answers with those of the Rust crate, bit for
# bit. Ends with 77 and a sentence where Python, its packages or a wheel's tools cannot be had.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
target=$(realpath -m "${CARGO_TARGET_DIR:-$root/target}")
cd "$root/common/python"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

skip() {
    echo "SKIPPED: ############ $1: the Python package was NOT tested ############"
    exit 77
}

python=${PYTHON:-python3}
command -v "$python" >/dev/null || skip "there is no $python"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' || skip "$python is older than 3.9"
"$python" -m venv "$work/build" >"$work/log" 2>&1 || skip "$python makes no virtual environments (python3-venv)"
"$work/build/bin/pip" install --quiet "maturin>=1.9,<2" >"$work/log" 2>&1 || { tail -n 2 "$work/log"; skip "maturin cannot be installed"; }

VIRTUAL_ENV=$work/build CARGO_TARGET_DIR=$target/python "$work/build/bin/maturin" build --profile dev --locked --out "$work/wheels" --interpreter "$python"
"$python" -m venv "$work/user"
wheel=$(echo "$work"/wheels/*.whl)
"$work/user/bin/pip" install --quiet "$wheel" >"$work/log" 2>&1 || { tail -n 2 "$work/log"; skip "numpy cannot be installed"; }
"$work/user/bin/pip" install --quiet "$wheel[test]" >"$work/log" 2>&1 || { tail -n 2 "$work/log"; skip "what the tests need cannot be installed"; }

# With the features of the workspace, for which it is built already after `cargo test --workspace`.
(cd "$root" && CARGO_TARGET_DIR=$target cargo build --quiet --locked --workspace --example bits)
"$target/debug/examples/bits" >"$work/bits.jsonl"
DP_PVI_BITS=$work/bits.jsonl PYTHONDONTWRITEBYTECODE=1 "$work/user/bin/python" -m pytest -q -rs
(cd "$work" && user/bin/mypy --strict --cache-dir="$work/types" -p dp_pvi_accounting)

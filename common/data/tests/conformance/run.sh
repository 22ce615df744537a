#!/usr/bin/env bash
# Writes one table by pandas, pyarrow, Polars, DuckDB and fastparquet, in every codec and form that they have, and by R and its data.table where these are installed, and holds what
# this program reads to the same bits, or to a refusal in the words of its type. Ends with 77 and a sentence where Python or the writers cannot be had.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

skip() {
    echo "SKIPPED: ############ $1: files of other programs were NOT read ############"
    exit 77
}

python=${PYTHON:-python3}
command -v "$python" >/dev/null || skip "there is no $python"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || skip "$python is older than 3.10"
"$python" -m venv "$work/writers" >"$work/log" 2>&1 || skip "$python makes no virtual environments (python3-venv)"
"$work/writers/bin/pip" install --quiet pandas pyarrow polars duckdb fastparquet tzdata >"$work/log" 2>&1 || { tail -n 2 "$work/log"; skip "the writers cannot be installed"; }
"$work/writers/bin/python" "$root/common/data/tests/conformance/write.py" "$work/files"
if command -v Rscript >/dev/null; then
    LC_ALL=C.UTF-8 Rscript "$root/common/data/tests/conformance/write.R" "$work/files"
else
    echo "there is no Rscript (r-base-core, r-cran-data.table): R's files were not written"
fi
cd "$root"
DP_PVI_CONFORMANCE=$work/files cargo test --locked --workspace --test data -- --ignored --nocapture conformance::

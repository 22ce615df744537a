#!/usr/bin/env bash
# How long a visit takes in one process and by a cluster of this machine: generates stays of patients, and starts a scheduler, two executors and the example `scale`.
#
#   common/engine/scale.sh ROWS OUT_DIR
#
# ROWS is about the number of stays. dp-pvi-sim, dp-pvi-site-engine and scale (`cargo build --release --locked --bins --example scale` in this folder) are taken from PATH. OUT_DIR needs about
# 300 bytes for each stay, and holds nothing large when this has ended.
set -euo pipefail

fail() { printf 'scale: %s\n' "$*" >&2; exit 1; }

[ $# -eq 2 ] || fail "usage: scale.sh ROWS OUT_DIR"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/cluster.sh"
mkdir "$2"
out=$(cd "$2" && pwd)

processes=()
stop() {
    for process in "${processes[@]}"; do kill "$process" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$out/data" "$out/snapshot"
}
trap stop EXIT

# A patient has 1.4 stays.
began=$SECONDS
dp-pvi-sim generate hospitals --sites 1 --rows $((($1 * 5 + 6) / 7)) --container parquet --output "$out/data"
echo "generated in $((SECONDS - began)) s: $(stat -c %s "$out/data/hospital-1.parquet") bytes"
start_cluster "$here/../../deploy/engine" "$out"
dp-pvi-site-engine ready --config "$out/engine/head.toml" || fail "the cluster did not start, see $out/scheduler.log"
scale "$out/data" "$out/snapshot" "$out/engine/site.key" "$out/engine/head.toml" "${processes[@]}"

#!/usr/bin/env bash
# A federation of real processes in which the third hospital's records are summed by a cluster: a coordinator, two ordinary hospitals, an evaluator, and a head with a scheduler and two executors.
#
#   common/engine/federation.sh OUT_DIR
#
# dp-pvi-server, dp-pvi-client, dp-pvi-sim and dp-pvi-site-engine are taken from PATH. Ends with an error where the run does not end with a posterior and a ledger that holds every visit.
set -euo pipefail

fail() { printf 'engine: %s\n' "$*" >&2; exit 1; }

[ $# -eq 1 ] || fail "usage: federation.sh OUT_DIR"
deploy=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../deploy" && pwd)
. "$(dirname "${BASH_SOURCE[0]}")/cluster.sh"
mkdir -p "$1"
out=$(cd "$1" && pwd)
federation=$out/federation
mkdir "$federation"
"$deploy/federation.sh" "$deploy" "$federation" >"$out/setup.log"

processes=()
stop() {
    for process in "${processes[@]}"; do kill "$process" 2>/dev/null || true; done
    wait 2>/dev/null || true
}
trap stop EXIT

start_cluster "$deploy/engine" "$out"
engine=$out/engine
cat >>"$federation/hospital-3/client.toml" <<END

[engine]
config = "$engine/head.toml"
folder = "$out/snapshot"
key = "$engine/site.key"
END

: >"$federation/server/events.jsonl"
DP_PVI__SERVER__LISTEN=127.0.0.1:0 DP_PVI__SERVER__HTTP=127.0.0.1:0 DP_PVI__SERVER__OUTPUT="$out" \
    dp-pvi-server run --config "$federation/server/server.toml" --format json >"$federation/server/events.jsonl" 2>"$federation/server/log" </dev/null &
server=$!
processes+=("$server")
address=
for _ in $(seq 100); do
    address=$(sed -n 's/.*"event":"listening","address":"\([^"]*\)".*/\1/p' "$federation/server/events.jsonl")
    [ -z "$address" ] || break
    sleep 0.1
done
[ -n "$address" ] || fail "the server printed no address, see $federation/server/log"
declare -A clients
for client in hospital-1 hospital-2 hospital-3 evaluator; do
    DP_PVI__SITE__SERVER="localhost:${address##*:}" dp-pvi-client run --config "$federation/$client/client.toml" --format json \
        >"$federation/$client/events.jsonl" 2>"$federation/$client/log" </dev/null &
    clients[$client]=$!
    processes+=("$!")
done
# Blocks of units, which only a client with [engine] writes.
seen=0
while kill -0 "$server" 2>/dev/null; do
    [ -z "$(find "$out/snapshot" -name '*.parquet' 2>/dev/null)" ] || seen=1
    sleep 0.2
done
wait "$server" || fail "the server ended with code $?, see $federation/server/log"
for client in "${!clients[@]}"; do
    wait "${clients[$client]}" || fail "$client ended with code $?, see $federation/$client/log"
done
[ "$seen" = 1 ] || fail "the third site wrote no snapshot: the cluster was not used"
[ -s "$out/posterior.json" ] || fail "there is no posterior"
# The ledger of the site with the cluster charges what those of the others charge.
spent() { dp-pvi-client budget show --config "$federation/$1/client.toml" | grep -v "$1"; }
[ -n "$(spent hospital-1)" ] || fail "the ledger of hospital-1 shows nothing"
[ "$(spent hospital-3)" = "$(spent hospital-1)" ] || { spent hospital-1; spent hospital-3; fail "the ledgers of two hospitals differ"; }
# Its lock stays.
[ "$(ls -A "$out/snapshot")" = lock ] || fail "the snapshot was left behind"
stop
processes=()
for number in 1 2; do [ -z "$(ls -A "$out/work-$number")" ] || fail "executor $number left something behind"; done
echo "a federation with a cluster as its third site ended with a posterior"

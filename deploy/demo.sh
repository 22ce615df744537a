#!/usr/bin/env bash
# The whole path on one machine: a coordinator, three hospitals and an evaluator as separate processes over mutual TLS, on a
# synthetic cohort whose true coefficients are known.
#
#   deploy/demo.sh OUT_DIR
#
# Leaves OUT_DIR/report.html and OUT_DIR/posterior.json, and below OUT_DIR/federation every party's folder with its log.
# Needs Rust and a C compiler, no root and no other tool.
set -euo pipefail

fail() { printf 'demo: %s\n' "$*" >&2; exit 1; }

[ $# -eq 1 ] || fail "usage: deploy/demo.sh OUT_DIR"
deploy=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
federation=$out/federation
[ ! -e "$federation" ] || fail "$federation exists: name another folder, or remove it"
command -v cargo >/dev/null || fail "cargo is not in PATH: install Rust (rustup.rs)"
command -v cc >/dev/null || fail "there is no C compiler (cc): install gcc, it builds SQLite and the TLS library"

echo "building (the first time takes some minutes) …"
# The profile of development, which is built fast. `cargo build --release --locked` builds what a site should run.
(cd "$deploy/.." && cargo build --locked --bins)
target=${CARGO_TARGET_DIR:-$deploy/../target}
PATH=$(cd "$deploy/.." && cd "$target/debug" && pwd):$PATH
export PATH

began=$SECONDS
mkdir "$federation"
"$deploy/federation.sh" "$deploy" "$federation"

processes=()
stop() {
    # Ends what still runs, however the script ends.
    for process in "${processes[@]}"; do kill "$process" 2>/dev/null || true; done
    wait 2>/dev/null || true
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Port 0: the server takes a free port and prints it on its first line.
: >"$federation/server/events.jsonl"
DP_PVI__SERVER__LISTEN=127.0.0.1:0 DP_PVI__SERVER__HTTP=127.0.0.1:0 DP_PVI__SERVER__OUTPUT="$out" \
    dp-pvi-server run --config "$federation/server/server.toml" --format json \
    >"$federation/server/events.jsonl" 2>"$federation/server/log" </dev/null &
server=$!
processes+=("$server")
address=
for _ in $(seq 100); do
    address=$(sed -n 's/.*"event":"listening","address":"\([^"]*\)".*/\1/p' "$federation/server/events.jsonl")
    [ -z "$address" ] || break
    kill -0 "$server" 2>/dev/null || { cat "$federation/server/log" >&2; fail "the server did not start"; }
    sleep 0.1
done
[ -n "$address" ] || fail "the server printed no address within 10 s, see $federation/server/log"
echo "server on $address, three hospitals and an evaluator are joining …"

declare -A clients
for client in hospital-1 hospital-2 hospital-3 evaluator; do
    DP_PVI__SITE__SERVER="localhost:${address##*:}" \
        dp-pvi-client run --config "$federation/$client/client.toml" --format json \
        >"$federation/$client/events.jsonl" 2>"$federation/$client/log" </dev/null &
    clients[$client]=$!
    processes+=("$!")
done

wait "$server" || fail "the server ended with code $?, see $federation/server/log"
for client in "${!clients[@]}"; do
    wait "${clients[$client]}" || fail "$client ended with code $?, see $federation/$client/log"
done
processes=()
for file in report.html posterior.json; do
    [ -s "$out/$file" ] || fail "$out/$file was not written"
done

cat <<END

done in $((SECONDS - began)) s after the build
rounds    $(grep -c '"event":"round-closed"' "$federation/server/events.jsonl")
held out  $(sed -n 's/.*"event":"metrics".*"log_likelihood":\(-\{0,1\}[0-9]*\.[0-9]\{0,4\}\).*"accuracy":\([0-9]*\.[0-9]\{0,4\}\).*/mean log-likelihood \1, accuracy \2 (last round, at the evaluator)/p' "$federation/server/events.jsonl" | tail -n 1)
budget    by the ledger of hospital-1:
$(dp-pvi-client budget show --config "$federation/hospital-1/client.toml" 2>/dev/null | sed 's/^/          /')
truth     $federation/cohort/truth.json
report    $out/report.html
posterior $out/posterior.json
END

#!/usr/bin/env bash
# Runs the federation of docker-compose.yml on the local Docker engine, four times:
#   1. undisturbed;
#   2. a hospital is killed (SIGKILL) in the middle of a round and started again: every round closes with all three, and nothing
#      is charged twice;
#   3. a hospital is cut off its network until a round's deadline: that round closes with two (min_sites = 2), the hospital comes
#      back and the run ends;
#   4. with a summer, on a network of its own with the server, under a task with aggregated trust. The summer is killed (SIGKILL) while a
#      round is open and started again: every round closes with all three, and no key is left.
# Every run must end with code 0 at the server and at every client, and leave a report and a posterior. Cleans up behind itself.
#
#   deploy/compose-test.sh [KEEP_DIR]      # KEEP_DIR receives logs and results of the runs
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

profile=
say() { printf 'compose-test: %s\n' "$*"; }
fail() { say "$*" >&2; exit 1; }

if docker compose version >/dev/null 2>&1; then
    compose() { docker compose -f docker-compose.yml ${profile:+--profile "$profile"} "$@" </dev/null; }
elif command -v docker-compose >/dev/null; then
    compose() { docker-compose -f docker-compose.yml ${profile:+--profile "$profile"} "$@" </dev/null; }
else
    fail "neither 'docker compose' nor docker-compose is installed"
fi

export COMPOSE_PROJECT_NAME=dp-pvi-test-$$
export DP_PVI_IMAGE=dp-pvi-test:$$
# Both builders work; the older one needs no plugin.
docker buildx version >/dev/null 2>&1 || export DOCKER_BUILDKIT=0
clients="hospital-1 hospital-2 hospital-3 evaluator"
keep=${1:-}
[ -z "$keep" ] || mkdir -p "$keep"
results=$(mktemp -d)

tear_down() { compose down --volumes --timeout 1 >/dev/null 2>&1 || true; }
finish() {
    local status=$?
    if [ $status -ne 0 ]; then
        say "logs of what failed:"
        compose logs --no-color --tail 30 2>/dev/null || true
    fi
    tear_down
    docker image rm "$DP_PVI_IMAGE" >/dev/null 2>&1 || true
    rm -rf "$results"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

container() { compose ps -q "$1"; }
events() { docker logs "$(container "$1")" 2>/dev/null; }

# wait_for SECONDS SERVICE PATTERN: until an event line of the service matches.
wait_for() {
    local until=$((SECONDS + $1))
    while ! events "$2" | grep -q "$3"; do
        [ $SECONDS -lt $until ] || fail "$2 did not say $3 within $1 s"
        [ "$(docker inspect -f '{{.State.Running}}' "$(container server)")" = true ] || fail "the server stopped before $2 said $3"
        sleep 0.1
    done
}

# ended SECONDS SERVICE: waits until a service's container has ended, and wants code 0.
ended() {
    local id code
    id=$(container "$2")
    code=$(timeout "$1" docker wait "$id") || fail "$2 was still running after $1 s"
    [ "$code" = 0 ] || fail "$2 ended with code $code"
}

# start NAME: volumes, networks, certificates, all processes.
start() {
    run=$1
    began=$SECONDS
    say "run '$run'"
    compose up --detach --no-build >"$results/up.log" 2>&1 || { cat "$results/up.log" >&2; fail "compose up failed"; }
}

# check: the run has to end well; leaves results/NAME.
check() {
    ended 120 server
    for client in $clients; do ended 30 "$client"; done
    mkdir -p "$results/$run"
    docker cp "$(container server)":/site/results/. "$results/$run" >/dev/null
    for file in report.html posterior.json; do
        [ -s "$results/$run/$file" ] || fail "$run: no $file"
    done
    grep -q '</html>' "$results/$run/report.html" || fail "$run: the report is cut off"
    events server >"$results/$run/server.jsonl"
    grep -q '"event":"run-ended","outcome":"complete"' "$results/$run/server.jsonl" || fail "$run: the run is not complete"
    grep -q '"event":"metrics"' "$results/$run/server.jsonl" || fail "$run: the evaluator reported nothing"
    # What each hospital's own ledger says, in a process without any network.
    for client in hospital-1 hospital-2 hospital-3; do
        docker run --rm --network none --read-only --volumes-from "$(container "$client")" "$DP_PVI_IMAGE" \
            dp-pvi-client budget show --config /site/client.toml --format json >"$results/$run/$client.budget.json"
    done
    if [ -n "$keep" ]; then cp -r "$results/$run" "$keep/"; fi
}

spent() { sed -n 's/.*"epsilon_spent":\([^,}]*\).*/\1/p' "$results/$run/$1.budget.json"; }
closed_with() { grep '"event":"round-closed"' "$results/$run/server.jsonl" | grep -c "$1" || true; }
done_in() { tear_down; say "run '$run' ok, $((SECONDS - began)) s"; }

all='"included":\["hospital-1","hospital-2","hospital-3"\]'
two='"included":\["hospital-1","hospital-2"\]'

say "building the image"
base=$(./base-image.sh)
# The programs of the demo and the tests.
if command -v cargo >/dev/null; then ./build-programs.sh dev; fi
for program in dp-pvi-server dp-pvi-client dp-pvi-sim; do
    [ -x "../target/programs/$program" ] || fail "../target/programs/$program is missing: run deploy/build-programs.sh first"
done
docker build --quiet -f Dockerfile --target runtime --build-arg BASE="$base" -t "$DP_PVI_IMAGE" .. >/dev/null

start undisturbed
check
rounds=$(closed_with '"outcome":"complete"')
[ "$rounds" -gt 0 ] && [ "$(closed_with "$all")" = "$rounds" ] || fail "not every round closed with all three hospitals"
once=$(spent hospital-2)
[ -n "$once" ] || fail "hospital-2's ledger says nothing"
done_in

start killed
wait_for 60 server '"event":"round-opened","round":2,'
# The task's release tick holds an update back, so this lands between its commit and its sending, or in training.
victim=$(container hospital-2)
docker kill -s KILL "$victim" >/dev/null
sleep 1
[ "$(docker inspect -f '{{.State.ExitCode}}' "$victim")" = 137 ] || fail "hospital-2 was not killed"
docker start "$victim" >/dev/null
check
[ "$(closed_with "$all")" = "$rounds" ] || fail "a round closed without the hospital that was killed and came back"
for client in hospital-1 hospital-2 hospital-3; do
    [ "$(spent "$client")" = "$once" ] || fail "$client spent $(spent "$client"), an undisturbed run costs $once"
done
done_in

export DP_PVI_UPDATE_DEADLINE=8s
start "cut off"
wait_for 60 server '"event":"round-opened","round":1,'
docker network disconnect "${COMPOSE_PROJECT_NAME}_hospital-3" "$(container hospital-3)"
wait_for 60 server "\"event\":\"round-closed\".*$two"
docker network connect --alias hospital-3 "${COMPOSE_PROJECT_NAME}_hospital-3" "$(container hospital-3)"
check
[ "$(closed_with "$two")" -ge 1 ] || fail "no round closed with two"
[ "$(closed_with '"included"')" = "$rounds" ] || fail "rounds are missing"
[ "$(spent hospital-1)" = "$once" ] || fail "hospital-1 spent $(spent hospital-1), an undisturbed run costs $once"
done_in

unset DP_PVI_UPDATE_DEADLINE
export DP_PVI_TASK=compose/aggregated.task.toml
start aggregated
# The charter waits for the summer, so nothing goes on before it is started, however long the others take.
profile=aggregated
compose up --no-start --no-deps --no-build summer >"$results/up.log" 2>&1 || { cat "$results/up.log" >&2; fail "the summer's container was not made"; }
clients="$clients summer"
victim=$(compose ps -q --all summer 2>/dev/null || container summer)
[ -n "$victim" ] || fail "the summer has no container"
networks=$(docker inspect -f '{{range $name, $_ := .NetworkSettings.Networks}}{{$name}} {{end}}' "$victim")
[ "$networks" = "${COMPOSE_PROJECT_NAME}_summer " ] || fail "the summer is on the networks $networks, not on its own alone"
wait_for 90 server '"event":"charter-drafted"'
docker start "$victim" >/dev/null
# By its id: the next rounds take two seconds each, which is less than compose may need to find a container.
until=$((SECONDS + 60))
until docker logs "$victim" 2>/dev/null | grep -q '"event":"round-closed","round":0,'; do
    [ $SECONDS -lt $until ] || fail "the summer closed no round within 60 s"
    sleep 0.1
done
docker kill -s KILL "$victim" >/dev/null
sleep 1
[ "$(docker inspect -f '{{.State.ExitCode}}' "$victim")" = 137 ] || fail "the summer was not killed"
docker start "$victim" >/dev/null
check
grep -q '"event":"summer","state":"gone"' "$results/$run/server.jsonl" || fail "the server did not notice that the summer was killed"
summed=$(closed_with "$all")
[ "$summed" -gt 0 ] && [ "$(closed_with '"included"')" = "$summed" ] || fail "a round closed without a hospital"
# An answer that was lost is given again, with the same bytes; so a round may be told twice, but never over other sites.
[ "$(events summer | grep -o '"event":"round-closed","round":[0-9]*,"contributors":3}' | sort -u | wc -l)" = "$summed" ] || fail "the summer closed other rounds than the server"
grep -q '"trust":"aggregated"' <(tr -d ' \n' <"$results/$run/posterior.json") || fail "the posterior does not say that trust is aggregated"
grep -q '"fallback_epsilon":[1-9]' <(tr -d ' \n' <"$results/$run/posterior.json") || fail "the posterior does not state the fallback"
keys=$(docker run --rm --network none --read-only --volumes-from "$victim" "$DP_PVI_IMAGE" sh -c 'ls /site/vault/*/*.key 2>/dev/null || true')
[ -z "$keys" ] || fail "keys are left in the vault: $keys"
done_in

say "all four runs ok"

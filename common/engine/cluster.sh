# A cluster of this machine for scripts that source this file: a scheduler and two executors of one thread each. dp-pvi-site-engine is taken from PATH.
#
#   start_cluster SAMPLES OUT      SAMPLES is deploy/engine. Makes OUT/engine (keys and configurations), OUT/snapshot, OUT/work-1 and OUT/work-2, and
#                                  appends the processes to the array `processes`.

start_cluster() {
    local samples=$1 out=$2 engine=$2/engine scheduler role number
    dp-pvi-site-engine keys --out "$engine"
    mkdir "$out/snapshot" "$out/work-1" "$out/work-2"
    # Ports of this machine that nobody listens at.
    port() { shuf -i 20000-29999 -n 1; }
    scheduler=$(port)
    for role in scheduler head executor; do
        sed -e "s/^host = \"dp-pvi-scheduler\"/host = \"localhost\"/" -e "s/^port = 50050/port = $scheduler/" -e 's/^bind = .*/bind = "127.0.0.1"/' \
            -e 's/^lost_after_seconds = .*/lost_after_seconds = 120/' -e 's/^parts = .*/parts = 8/' "$samples/$role.toml" >"$engine/$role.toml"
    done
    dp-pvi-site-engine scheduler --config "$engine/scheduler.toml" </dev/null 2>"$out/scheduler.log" &
    processes+=("$!")
    for number in 1 2; do
        sed -e 's/^host = "executor.*/host = "localhost"/' -e "s/^port = 50051/port = $(port)/" -e 's/^threads = .*/threads = 1/' \
            -e "s|^work = .*|work = \"$out/work-$number\"|" -e "s|^snapshots = .*|snapshots = \"$out/snapshot\"|" "$engine/executor.toml" >"$engine/executor-$number.toml"
        dp-pvi-site-engine executor --config "$engine/executor-$number.toml" </dev/null 2>"$out/executor-$number.log" &
        processes+=("$!")
    done
}

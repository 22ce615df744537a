#!/bin/sh
# Sets up a federation of three hospitals and one evaluator below ROOT, each party in its own folder, and a summer where the task has
# trust = "aggregated":
#
#   federation.sh SAMPLES ROOT [SERVER_NAME] [TASK]
#
# SAMPLES holds the sample configurations (the folder of this script), SERVER_NAME is the host that the sites call (default:
# localhost), TASK is the task's file in SAMPLES (default: task.toml). The three programs are taken from PATH.
# For trying things out: one person plays all parties here. In a real federation every site runs its own lines, and only the
# request (NAME.csr.pem), the certificate (NAME.pem) and the authority (ca.pem) travel: deploy/guide/src/coordinator.md says how.
set -eu

samples=$1
root=$2
name=${3:-localhost}
task=${4:-task.toml}
federation=three-hospitals

# Public cohort generator: a file of records for each hospital, a public test set, the schema and the true coefficients.
dp-pvi-sim generate hospitals -o "$root/cohort" >"$root/generate.log"

# The coordinator: an authority for certificates, its own certificate, its configuration and the public task.
mkdir -p "$root/server"
dp-pvi-server ca init --federation "$federation" --dns localhost --dns "$name" --ip 127.0.0.1 -o "$root/server/tls"
cp "$samples/server.toml" "$root/server/server.toml"
cp "$samples/$task" "$root/server/task.toml"
cp "$root/cohort/schema.toml" "$root/server/schema.toml"

# The second party of aggregated runs. It makes its keys; the coordinator signs its certificate. In a real federation it is somebody else's
# machine, and summer.pub.pem goes from there to every hospital, not through the coordinator.
if grep -q '^trust = "aggregated"' "$root/server/task.toml"; then
    summer=$root/summer
    mkdir -p "$summer"
    dp-pvi-server summer csr --federation "$federation" --name summer -o "$summer/tls"
    dp-pvi-server ca sign "$summer/tls/summer.csr.pem" --ca "$root/server/tls" -o "$summer/tls"
    sed -e "s/\"localhost/\"$name/" "$samples/summer.toml" >"$summer/summer.toml"
fi

for client in hospital-1 hospital-2 hospital-3 evaluator; do
    home=$root/$client
    mkdir -p "$home/data"
    # The site makes its keys; only the request leaves it.
    if [ "$client" = evaluator ]; then role=evaluator data=evaluation; else role=site data=$client; fi
    dp-pvi-client csr --federation "$federation" --name "$client" --role "$role" -o "$home/tls"
    # The authority signs, and the site gets its certificate and ca.pem back.
    dp-pvi-server ca sign "$home/tls/$client.csr.pem" --ca "$root/server/tls" -o "$home/tls"
    cp "$root/cohort/$data.csv" "$root/cohort/schema.toml" "$home/data/"
    # The samples speak of hospital-1 and its number of records, and of a server on localhost. (Under replace-one the number of
    # records is no secret; the first line of the file is its header.)
    if [ "$role" = evaluator ]; then sample=evaluator.toml; else sample=client.toml; fi
    units=$(($(wc -l <"$home/data/$data.csv") - 1))
    sed -e "s/hospital-1/$client/g" -e "s/\"localhost/\"$name/" -e "s/^nominal_units = .*/nominal_units = $units/" \
        "$samples/$sample" >"$home/client.toml"
    # A hospital that takes part in aggregated tasks says so, and pins the summer.
    if [ -n "${summer:-}" ] && [ "$role" = site ]; then
        cp "$summer/tls/summer.pub.pem" "$home/tls/"
        sed -i -e 's/^allow_trust = .*/allow_trust = ["local", "aggregated"]/' "$home/client.toml"
    fi
    # Once in the life of a data set: nothing else ever makes a ledger.
    if [ "$role" = site ]; then dp-pvi-client ledger create --config "$home/client.toml"; fi
done

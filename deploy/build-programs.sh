#!/usr/bin/env bash
# Builds the programs that the images hold, into target/programs: build-programs.sh [PROFILE], by default `release`, which is fully optimised. `dev` takes
# a fraction of the time, for trying out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
profile=${1:-release}
folder=$([ "$profile" = dev ] && echo debug || echo "$profile")
cargo build --profile "$profile" --locked --bins
mkdir -p target/programs
cp "target/$folder"/dp-pvi-{client,server,sim} target/programs/

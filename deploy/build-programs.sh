#!/usr/bin/env bash
# Builds the programs that the images hold, into target/programs: build-programs.sh [PROFILE], by default `dist`, the profile of what is shipped.
# `release` takes half as long, for trying out.
#
# Client and server by a command of their own: cargo compiles a library once for all packages of one command, with the features that any of them
# wants. The simulation wants feature "unsealed" of dp-pvi-privacy, and in one command with it the client would be compiled with it too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
profile=${1:-dist}
mkdir -p target/programs
cargo build --profile "$profile" --locked --target-dir target -p dp-pvi-client -p dp-pvi-server --bins
cp "target/$profile/dp-pvi-client" "target/$profile/dp-pvi-server" target/programs/
cargo build --profile "$profile" --locked --target-dir target -p dp-pvi-simulation --bins
cp "target/$profile/dp-pvi-sim" target/programs/

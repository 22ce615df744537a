#!/usr/bin/env bash
# Builds the programs that the images hold, into target/release.
#
# Client and server by a command of their own: cargo compiles a library once for all packages of one command, with the features that any of them
# wants. The simulation wants feature "unsealed" of dp-pvi-privacy, and in one command with it the client would be compiled with it too. So the
# simulation comes second, as one package; that leaves the two programs as they are.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo build --release --locked --target-dir target -p dp-pvi-client -p dp-pvi-server --bins
cargo build --release --locked --target-dir target -p dp-pvi-simulation --bins

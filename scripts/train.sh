#!/usr/bin/env bash
# Sets up, builds and trains: scripts/train.sh [titan-train arguments]. By default configs/debug.toml on 2 ranks of this
# machine. Environment: NPROC (ranks, default 2), CONFIG (default configs/debug.toml).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh
scripts/build.sh release titan-train
exec build/release/titan-train --nproc "${NPROC:-2}" --config "${CONFIG:-configs/debug.toml}" "$@"

#!/usr/bin/env bash
# Trains for an hour under faults: scripts/soak.sh [--seed S] [--minutes M | --starts N] [--mesh NAME] [--schedule FILE].
# Every start is disturbed by one of the faults of tests/integration/soak/disturbances.py (--list), drawn from the seed:
# kills, signals, hangs, full and failing disks, damaged files, changed bits in memory. Half of the time is spent on one
# mesh, half on changing ones. In the end every loss and the final weights must equal those of a run that nothing has
# disturbed, to the last bit. Prints the starts, and what was lost. The exit code is 0 only if all held; the same seed
# and --starts repeat a schedule.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec .venv/bin/python tests/integration/soak/soak.py "$@"

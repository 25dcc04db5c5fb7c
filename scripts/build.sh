#!/usr/bin/env bash
# Builds build/<preset>: scripts/build.sh [preset] [target ...]. Presets: release (default), debug, asan, tsan, cuda, fuzz.
# "release" builds the CUDA module too when a CUDA toolkit is found; "cuda" insists on one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=${1:-release}
shift || true
[[ -f build/$preset/build.ninja ]] || cmake --preset "$preset" >build-configure.log 2>&1 || {
  cat build-configure.log >&2
  rm -f build-configure.log
  exit 1
}
rm -f build-configure.log
targets=()
for target in "$@"; do targets+=(--target "$target"); done
exec cmake --build "build/$preset" "${targets[@]}"

#!/usr/bin/env bash
# Builds build/<preset>: scripts/build.sh [preset] [target ...]. Presets: release (default), debug, asan, tsan, cuda, fuzz.
# "release" builds the CUDA module too if a CUDA toolkit is found; "cuda" requires one. Environment:
# CMAKE_BUILD_PARALLEL_LEVEL (compilers at once, each with up to 1 GB; default: one more than there are cores).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=${1:-release}
shift || true
# These are the tools that scripts/setup.sh --no-system took from pip.
PATH=$PWD/.venv/tools:$PATH
[[ -f build/$preset/build.ninja ]] || cmake --preset "$preset" >build-configure.log 2>&1 || {
  cat build-configure.log >&2
  rm -f build-configure.log
  exit 1
}
rm -f build-configure.log
targets=()
for target in "$@"; do targets+=(--target "$target"); done
log=build/$preset/build.log
build() { cmake --build "build/$preset" -j "$1" "${targets[@]}" 2>&1 | tee "$log"; }
build "${CMAKE_BUILD_PARALLEL_LEVEL:-$(($(nproc) + 1))}" || {
  # The kernel kills a compiler when memory is short. A single one may get through.
  grep -qE 'Killed signal|command: Killed|signal 9' "$log" || exit 1
  echo "build.sh: a compiler was killed; once more with one at a time" >&2
  build 1
}

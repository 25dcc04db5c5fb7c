#!/usr/bin/env bash
# Formats the C++ and CUDA files that git knows: scripts/fmt.sh [--check]. With --check nothing is changed, and the exit
# code is 1 when something would be.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command -v clang-format >/dev/null || {
  echo "fmt.sh: clang-format is not installed (Debian: apt-get install clang-format)" >&2
  exit 2
}
case ${1:-} in
  "") mode=(-i) ;;
  --check) mode=(--dry-run --Werror) ;;
  *)
    echo "usage: scripts/fmt.sh [--check]" >&2
    exit 2
    ;;
esac
git ls-files -z --cached --others --exclude-standard '*.h' '*.cpp' '*.cu' '*.cuh' | xargs -0 -r clang-format "${mode[@]}"

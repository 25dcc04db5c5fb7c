#!/usr/bin/env bash
# Builds the wheel: build/wheel/dist/titan_train-VERSION-py3-none-manylinux_2_34_x86_64.whl. It contains everything but
# torch, and the same commit gives the same bytes, in any folder. Prints its path, size and SHA-256 last.
#
#   scripts/package.sh                  builds the preset "wheel", with the CUDA module if there is a CUDA toolkit
#   scripts/package.sh -DTITAN_CUDA=ON  requires a toolkit; OFF leaves the module out (any options of cmake may follow)
#
# Debian 12's compiler (GCC 12) makes a program for glibc 2.34; newer compilers and C libraries may need symbols that
# older machines do not have, and then this refuses.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
TITAN_LIBRARIES=sources scripts/setup.sh
PATH=$PWD/.venv/tools:$PATH
mkdir -p build
cmake --preset wheel "$@" >build/wheel-configure.log 2>&1 || {
  cat build/wheel-configure.log >&2
  exit 1
}
scripts/build.sh wheel titan_installed
rm -rf build/wheel/tree build/wheel/dist
cmake --install build/wheel --prefix build/wheel/tree >build/wheel/install.log || { cat build/wheel/install.log >&2; exit 1; }
wheel=$(.venv/bin/python scripts/make_wheel.py build/wheel/tree build/wheel/dist)
printf '%s\n%s bytes\nSHA-256 %s\n' "$wheel" "$(stat -c %s "$wheel")" "$(sha256sum "$wheel" | cut -d' ' -f1)"

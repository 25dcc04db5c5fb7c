#!/usr/bin/env bash
# Prepares a machine: Debian packages, the virtual environment .venv with the pinned torch wheel, and the default
# corpus and tokenizer under assets/. Running it again checks stamps and does no work twice.
#
#   scripts/setup.sh               everything, as root or with sudo
#   scripts/setup.sh --no-system   without root and without packages: needs a C++ compiler and python3. Builds the
#                                  libraries from sources (scripts/dependencies.py), and takes cmake and ninja from pip
#
# Environment: PYTHON (the interpreter that makes .venv; default python3); CXX (the compiler); TITAN_LIBRARIES=sources
# builds the libraries but takes tools from packages. Later calls remember --no-system and sources, not PYTHON and CXX.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools=(g++ cmake ninja-build lld ccache pkg-config git python3 python3-venv openmpi-bin clang libclang-rt-dev)
library_packages=(libspdlog-dev libtomlplusplus-dev libcli11-dev nlohmann-json3-dev libsentencepiece-dev
  libpcre2-dev libutf8proc-dev zlib1g-dev libzstd-dev libgloo-dev libgtest-dev libgmock-dev)

die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# Retries once after a while: for what needs the network.
twice() { "$@" || { sleep 10; "$@"; }; }

has_libfuzzer() {
  clang++ -fsanitize=fuzzer,address -x c++ -o /dev/null - 2>/dev/null \
    <<<'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }'
}

install_packages() {
  local missing=() package
  for package in "$@"; do
    # A compiler or cmake that did not come from a Debian package counts as well.
    case $package in
      g++|cmake|git|python3|clang|lld) command -v "$package" >/dev/null && continue ;;
    esac
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' && continue
    # The name of the package with clang's runtime libraries varies with the distribution and the version.
    [[ $package == libclang-rt-dev ]] && has_libfuzzer && continue
    missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  command -v apt-get >/dev/null || die "this machine has no apt-get. Run scripts/setup.sh --no-system, or install what these Debian packages hold: ${missing[*]}"
  local sudo=()
  if ((EUID != 0)); then
    sudo -n true 2>/dev/null || die "missing packages, and no root to install them. Run scripts/setup.sh --no-system, or ask for: apt-get install ${missing[*]}"
    sudo=(sudo -n)
  fi
  echo "setup: installing ${missing[*]}"
  local apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=3 -qq)
  twice "${apt[@]}" update || die "apt-get update failed. These packages are missing: ${missing[*]}"
  twice "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null ||
    die "apt-get could not install: ${missing[*]}"
}

# For tests that open the reports of runs and of a sweep. Not every distribution packages a browser; without one they
# are skipped.
install_browser() {
  local name
  for name in chromium-headless-shell chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null && return 0
  done
  ((EUID == 0)) && command -v apt-get >/dev/null || return 0
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium-headless-shell >/dev/null 2>&1 ||
    echo "setup: no package chromium-headless-shell here, so the tests do not open the sweep's report in a browser"
}

make_venv() {
  local stamp=.venv/requirements.stamp
  local without_dependencies=tests/requirements-tensorboard.txt
  cat requirements.txt "$without_dependencies" | cmp -s - "$stamp" && return 0
  echo "setup: making .venv (torch wheel and what it needs, about 5 GB)"
  # A partial environment is made again from scratch: pip cannot repair one that was killed midway.
  [[ -f $stamp ]] || rm -rf .venv
  "${PYTHON:-python3}" -m venv .venv || die "python3 -m venv failed: is the package python3-venv installed?"
  twice .venv/bin/python -m pip install -q --disable-pip-version-check --retries 10 --timeout 60 -r requirements.txt ||
    die "pip could not install requirements.txt (needs a package index that has torch==2.11.0 for this Python)"
  twice .venv/bin/python -m pip install -q --disable-pip-version-check --retries 10 --timeout 60 --no-deps \
    -r "$without_dependencies" || die "pip could not install $without_dependencies"
  cat requirements.txt "$without_dependencies" >"$stamp"
}

# The default corpus and tokenizer: real code that every installation of the wheel has, see scripts/prepare_data.py.
make_assets() { .venv/bin/python scripts/prepare_data.py --output assets; }

# Prints the first of cmake and ninja that is missing or older than CMakeLists.txt needs.
missing_build_tool() {
  local version
  version=$(cmake --version 2>/dev/null | sed -n '1s/.* //p')
  [[ -n $version && $(printf '3.25\n%s\n' "$version" | sort -V | head -1) == 3.25 ]] || { echo cmake; return; }
  command -v ninja >/dev/null || echo ninja
}

check_compiler() {
  local compiler=${CXX:-c++} remedy="Load your cluster's module for GCC 12 or later, or name such a compiler in CXX" version
  command -v "$compiler" >/dev/null || die "there is no C++ compiler '$compiler'. $remedy"
  version=$("$compiler" -dumpversion)
  "$compiler" --version | grep -q clang || ((${version%%.*} >= 12)) || die "'$compiler' is GCC $version. $remedy"
}

prepare_without_system() {
  check_compiler
  make_venv
  touch "$no_system"
  PATH=$PWD/.venv/tools:$PATH
  if [[ -n $(missing_build_tool) ]]; then
    .venv/bin/python -m pip install -q --disable-pip-version-check "cmake>=3.25,<5" ninja ||
      die "pip could not install cmake and ninja"
    # Only these, in front of the machine's own: the rest of .venv/bin would hide its python3.
    mkdir -p .venv/tools
    ln -sf ../bin/{cmake,ctest,ninja} .venv/tools/
  fi
  PYTHON=.venv/bin/python build_libraries
}

build_libraries() { "${PYTHON:-python3}" scripts/dependencies.py || die "the libraries could not be built"; }

install_from_debian() {
  if [[ $libraries == sources ]]; then
    install_packages "${tools[@]}"
    build_libraries
  else
    install_packages "${tools[@]}" "${library_packages[@]}"
  fi
  install_browser
}

no_system=.venv/no-system.stamp
case ${1:-} in
  --no-system) without_system=yes ;;
  '') if [[ -e $no_system ]]; then without_system=yes; else without_system=''; fi ;;
  *) die "unknown option $1; usage: scripts/setup.sh [--no-system]" ;;
esac
libraries=${TITAN_LIBRARIES:-}
if [[ -z $libraries ]]; then
  if [[ -e .deps || -n $without_system ]]; then libraries=sources; else libraries=system; fi
fi
[[ $libraries == sources || $libraries == system ]] || die "TITAN_LIBRARIES is '$libraries'; expected sources or system"

if [[ $libraries == system && (-n $without_system || -e .deps) ]]; then
  die "TITAN_LIBRARIES=system: --no-system and new build folders use .deps. Remove .deps and .venv/no-system.stamp first"
fi
if [[ -n $without_system ]]; then
  prepare_without_system
  make_assets
  exit
fi

if "${PYTHON:-python3}" -c 'import ensurepip' 2>/dev/null; then
  # Runs both at once, which saves half a minute on a fresh machine. A half-installed package is worse than a missing
  # one, so the script waits for both however it ends.
  install_from_debian &
  packages_job=$!
  trap wait EXIT
  make_venv
  wait "$packages_job"
else
  install_from_debian # python3-venv is one of them
  make_venv
fi
make_assets

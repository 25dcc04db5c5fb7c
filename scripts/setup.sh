#!/usr/bin/env bash
# Prepares a machine: Debian packages, the virtual environment .venv with the pinned torch wheel, and the default
# corpus and tokenizer under assets/. Running it again checks stamps and does no work twice.
#
#   scripts/setup.sh            everything
#
# Environment: PYTHON (the interpreter that makes .venv; default python3).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=(g++ cmake ninja-build lld ccache pkg-config git python3 python3-venv
  libspdlog-dev libtomlplusplus-dev libcli11-dev nlohmann-json3-dev libsentencepiece-dev
  libpcre2-dev libutf8proc-dev zlib1g-dev libzstd-dev
  libgloo-dev libgtest-dev libgmock-dev openmpi-bin clang libclang-rt-dev)

die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# Retries once after a while: for what needs the network.
twice() { "$@" || { sleep 10; "$@"; }; }

has_libfuzzer() {
  clang++ -fsanitize=fuzzer,address -x c++ -o /dev/null - 2>/dev/null \
    <<<'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }'
}

install_packages() {
  local missing=() package
  for package in "${packages[@]}"; do
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
  command -v apt-get >/dev/null || die "this machine has no apt-get. Install what these Debian packages hold, then run this again: ${missing[*]}"
  local sudo=()
  if ((EUID != 0)); then
    sudo -n true 2>/dev/null || die "missing packages, and no root to install them. Ask for: apt-get install ${missing[*]}"
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

install_from_debian() {
  install_packages
  install_browser
}

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

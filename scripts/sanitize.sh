#!/usr/bin/env bash
# Runs the tests of hooks, collectives and handles under the sanitizers, and checks that they find planted bugs:
# scripts/sanitize.sh [asan|tsan|all]. Builds only what it runs. Prints "N passed, N failed" last; the exit code is 0 if
# none failed.
#
#   asan  address, leaks (scripts/lsan.supp names one of the wheel's), undefined behavior
#   tsan  data races; scripts/tsan.supp names what is ignored, and why
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
exec </dev/null

case ${1:-all} in
  all) presets=(asan tsan) ;;
  asan | tsan) presets=("$1") ;;
  *)
    echo "usage: scripts/sanitize.sh [asan|tsan|all]" >&2
    exit 2
    ;;
esac

# Each rank runs one thread, as the tests of the release build do where ranks share the cores.
export OMP_NUM_THREADS=1
export ASAN_OPTIONS=detect_leaks=1:exitcode=66
export LSAN_OPTIONS=suppressions=$PWD/scripts/lsan.supp:print_suppressions=0
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1:exitcode=66
export TSAN_OPTIONS=suppressions=$PWD/scripts/tsan.supp:exitcode=66:second_deadlock_stack=1

passed=0 failed=0
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT

# check NAME WANTED_EXIT_CODE COMMAND...
check() {
  local name=$1 wanted=$2 code=0
  shift 2
  "$@" >"$log" 2>&1 || code=$?
  if ((code == wanted)); then
    passed=$((passed + 1))
    echo "ok     $name"
  else
    failed=$((failed + 1))
    echo "FAILED $name: exit code $code, expected $wanted: $*"
    # The first report, or what else went wrong.
    { grep -m 1 -A 50 -E 'WARNING: ThreadSanitizer|ERROR: (Address|Leak)Sanitizer|runtime error' "$log" || tail -n 50 "$log"; } |
      sed 's/^/  | /'
  fi
}

declare -A planted=([asan]="use_after_free leak" [tsan]="race race_in_hook")
tests=(tests/unit/nn/nn_test tests/distributed/dist_collectives_test tests/distributed/dist_shared_channel_test tests/distributed/dist_shared_memory_test
  tests/distributed/dist_fsdp_test)
for preset in "${presets[@]}"; do
  if ! scripts/build.sh "$preset" "${tests[@]##*/}" sanitize_planted; then
    echo "sanitize.sh: the $preset build failed" >&2
    failed=$((failed + 1))
    continue
  fi
  check "$preset: no mistake, no report" 0 "build/$preset/tests/sanitize/sanitize_planted" none
  for mistake in ${planted[$preset]}; do
    check "$preset: finds a planted $mistake" 66 "build/$preset/tests/sanitize/sanitize_planted" "$mistake"
  done
  for test in "${tests[@]}"; do check "$preset: ${test##*/}" 0 "build/$preset/$test"; done
done
echo "$passed passed, $failed failed"
((failed == 0 && passed > 0))

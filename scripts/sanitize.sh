#!/usr/bin/env bash
# Runs tests under the sanitizers, and checks that they find planted bugs: scripts/sanitize.sh [asan|tsan|all] [--every].
# Builds only what it runs. Prints "N passed, N failed" last; the exit code is 0 if none failed.
#
#   asan     address, leaks (scripts/lsan.supp names one of the wheel's), undefined behavior
#   tsan     data races; scripts/tsan.supp names what is ignored, and why
#   --every  all tests of the labels unit and dist (an hour or more for each of the two); otherwise those of hooks,
#            collectives and handles. Prints a row of a table in Markdown, which says what was clean when.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
exec </dev/null

presets=(asan tsan) every=''
for word in "$@"; do
  case $word in
    all) ;;
    asan | tsan) presets=("$word") ;;
    --every) every=1 ;;
    *)
      echo "usage: scripts/sanitize.sh [asan|tsan|all] [--every]" >&2
      exit 2
      ;;
  esac
done

# Each rank runs one thread, as the tests of the release build do where ranks share the cores.
export OMP_NUM_THREADS=1
# Signals are for the program's own handler, which tests look at. Libraries that tests preload may come before a runtime.
signals=handle_segv=0:handle_sigbus=0:handle_abort=0:handle_sigill=0:handle_sigfpe=0:use_sigaltstack=0
export ASAN_OPTIONS=detect_leaks=1:exitcode=66:verify_asan_link_order=0:$signals
export LSAN_OPTIONS=suppressions=$PWD/scripts/lsan.supp:print_suppressions=0
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1:exitcode=66
export TSAN_OPTIONS=suppressions=$PWD/scripts/tsan.supp:exitcode=66:second_deadlock_stack=1:$signals

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

# The thread sanitizer cannot judge some tests. It does not see the wheel's reference counts: where torch's engine has a
# thread for a device, it reports each of torch's objects that one thread makes and the other frees. It delivers a signal
# only when a thread's call returns, and these tests wait for one that interrupts a call.
declare -A left_out=([asan]="none" [tsan]="dist_simulated_device_test")
declare -A left_out_parts=([asan]="" [tsan]="Signal.InterruptedReadIsRestarted:ThreadStacks.AreThoseOfTheOtherThreads")

# Runs all tests of the labels unit and dist in build/PRESET, two at a time: a sanitized process takes several times the
# memory.
check_every() {
  local report=build/$1/reports/sanitized.xml good=0 bad=1 skipped=0
  mkdir -p "${report%/*}"
  rm -f "$report"
  GTEST_FILTER="-${left_out_parts[$1]}" TITAN_TIME_SCALE=20 ctest --test-dir "build/$1" -L '^(unit|dist)$' -E "^(${left_out[$1]})\$" -j 2 --timeout 3600 --output-on-failure --output-junit "$PWD/$report"
  [[ -f $report ]] && read -r good bad skipped _ < <(python3 scripts/ctest_report.py count "$report" --skips tests/expected_skips.txt)
  passed=$((passed + good)) failed=$((failed + bad))
  echo "| $(date +%F) | $(git describe --always --dirty) | $1 | $(c++ -dumpfullversion) | $(uname -m), $(nproc --all) cores | $good passed, $bad failed, $skipped skipped, left out: ${left_out[$1]} ${left_out_parts[$1]} |"
}

declare -A planted=([asan]="use_after_free leak" [tsan]="race race_in_hook race_in_loop")
tests=(tests/unit/nn/nn_test tests/distributed/dist_collectives_test tests/distributed/dist_shared_channel_test tests/distributed/dist_shared_memory_test
  tests/distributed/dist_fsdp_test)
for preset in "${presets[@]}"; do
  targets=("${tests[@]##*/}" sanitize_planted)
  if [[ $every ]]; then
    targets=()
    [[ -f build/$preset/build.ninja ]] || cmake --preset "$preset" -DTITAN_UNITY=ON >/dev/null
  fi
  if ! scripts/build.sh "$preset" "${targets[@]}"; then
    echo "sanitize.sh: the $preset build failed" >&2
    failed=$((failed + 1))
    continue
  fi
  check "$preset: no mistake, no report" 0 "build/$preset/tests/sanitize/sanitize_planted" none
  for mistake in ${planted[$preset]}; do
    check "$preset: finds a planted $mistake" 66 "build/$preset/tests/sanitize/sanitize_planted" "$mistake"
  done
  if [[ $every ]]; then
    check_every "$preset"
  else
    for test in "${tests[@]}"; do check "$preset: ${test##*/}" 0 "build/$preset/$test"; done
  fi
done
echo "$passed passed, $failed failed"
((failed == 0 && passed > 0))

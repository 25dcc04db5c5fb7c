#!/usr/bin/env bash
# Prepares the machine, builds the release preset and runs tests. Prints "N passed, N failed" last, with ", N skipped"
# if some were; the exit code is 0 only if tests ran and none failed.
#
#   scripts/test.sh                     everything that is deterministic: the labels unit, dist and integration
#   scripts/test.sh quick               a few minutes: most unit tests, and one path of each kind
#   scripts/test.sh wide                the same kinds on more meshes, dtypes, sizes and signals: before a release
#   scripts/test.sh long                tests that take hours or depend on chance: label long, fuzz, sanitize and flake
#   scripts/test.sh unit dist           only the tests with these labels
#   TITAN_SKIP_SETUP=1 scripts/test.sh  without scripts/setup.sh and scripts/build.sh: tests what is built
#
# fuzz, sanitize and flake are the scripts of these names, which can be named like labels.
#
# A skipped test must be in tests/expected_skips.txt; otherwise it is a failure. A failed test with the label `timing`
# runs once more, alone, and if it passes then counts as passed with a line FLAKY; at most three do. No other failure is
# retried; but if PyTorch, as the oracle, crashes in its own code, its answers are computed again, with such a line too.
#
# For the test of this script: TITAN_TEST_DIR and TITAN_EXPECTED_SKIPS replace build/release and the list.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
source scripts/marked.sh
PATH=$PWD/.venv/tools:$PATH # what setup.sh --no-system took from pip
# Threads that wait for others sleep: spinning is for a process that has the machine to itself, and here many share it.
export OMP_WAIT_POLICY=passive
exec </dev/null

tests=$(realpath -m "${TITAN_TEST_DIR:-build/release}")
reports=$tests/reports
most_flaky=3
mark=TITAN_TEST_RUN=$$-$RANDOM$RANDOM
passed=0 failed=0 skipped=0

labels=() steps=()
for word in "$@"; do
  case $word in
    long) labels+=(long) steps+=(fuzz sanitize flake) ;;
    fuzz | sanitize | flake) steps+=("$word") ;;
    *) labels+=("$word") ;;
  esac
done
(($#)) || labels=(unit dist integration)

finish() {
  local words="$passed passed, $failed failed"
  ((skipped)) && words+=", $skipped skipped"
  echo "$words"
  ((failed == 0 && passed > 0))
  exit
}

# Details go with the tests' output; only the counts are the output of this function.
exec 3>&1
report() { python3 scripts/ctest_report.py "$@" 2>&3; }

# Counts the tests that had passed when ctest ended without a report.
count_interrupted() {
  local good=0
  [[ -f $reports/tests.log ]] && read -r good < <(report interrupted "$reports/tests.log")
  passed=$((passed + good)) failed=$((failed + 1))
}

doing=setup
# shellcheck disable=SC2317  # called by the trap
interrupted() {
  trap '' TERM INT
  echo "test.sh: ended by a signal during $doing" >&2
  end_marked "$mark"
  if [[ $doing == tests ]]; then count_interrupted; else failed=$((failed + 1)); fi
  finish
}
trap interrupted TERM INT

# logged NAME COMMAND...: also writes its output to $reports/NAME.log.
# shellcheck disable=SC2016
logged() { run_marked "$mark" bash -o pipefail -c '"${@:2}" 2>&1 | tee "$1"' logged "$reports/$1.log" "${@:2}"; }

# run_ctest NAME WORDS...: leaves $reports/NAME.xml. GoogleTest reports skipped cases in a passing test's output.
run_ctest() {
  rm -f "$reports/$1.xml"
  logged "$1" ctest --test-dir "$tests" "${@:2}" --output-on-failure --no-tests=error --test-output-size-passed 1000000 \
    --output-junit "$reports/$1.xml"
}

run_labels() {
  local label pattern timing again=() good bad left_out flaky
  for label in "${labels[@]}"; do
    ctest --test-dir "$tests" -N -L "^$label\$" | grep -q '^Total Tests: 0$' || continue
    echo "test.sh: no test has the label $label" >&2
    failed=$((failed + 1))
  done
  # Four times as many as cores, since a test that starts ranks counts for two: ranks wait for each other, and no
  # verdict depends on how long.
  if ! run_ctest tests -j $((4 * $(nproc))) -L "^($(IFS='|'; echo "${labels[*]}"))\$"; then
    [[ -f $reports/tests.xml ]] || { count_interrupted; return; }
    mapfile -t timing < <(ctest --test-dir "$tests" -N -L '^timing$' | sed -n 's/^ *Test *#[0-9]*: //p')
    pattern=$(report retryable "$reports/tests.xml" "$reports/tests.log" "$most_flaky" "${timing[@]}")
    if [[ -n $pattern ]]; then
      echo "test.sh: once more, alone: $pattern"
      run_ctest again -j 1 -R "$pattern"
      [[ -f $reports/again.xml ]] && again=(--again "$reports/again.xml")
    fi
  fi
  # Without counts nothing is known, which is a failure.
  read -r good bad left_out flaky < <(report count "$reports/tests.xml" "${again[@]}" \
    --skips "${TITAN_EXPECTED_SKIPS:-tests/expected_skips.txt}") || good=0 bad=1 left_out=0 flaky=0
  passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + left_out))
  ((flaky == 0)) || echo "test.sh: $flaky FLAKY; first outputs in $reports, tests.log and tests.xml"
}

# run_step NAME COMMAND...: runs a step that counts for itself.
run_step() {
  local code=0 good bad
  doing=$1
  echo "test.sh: $1"
  logged "$@" || code=$?
  read -r good bad < <(sed -nE '$s/^([0-9]+) passed, ([0-9]+) failed$/\1 \2/p' "$reports/$1.log") || good=0 bad=1
  ((code == 0 || bad > 0)) || bad=1
  passed=$((passed + good)) failed=$((failed + bad))
}

if [[ -z ${TITAN_SKIP_SETUP:-} ]]; then
  for doing in setup.sh build.sh; do
    run_marked "$mark" "scripts/$doing" && continue
    echo "test.sh: scripts/$doing failed, so no test ran" >&2
    failed=1
    finish
  done
fi
mkdir -p "$reports" || exit 1
rm -f "$reports/tests.log"
doing=tests
((${#labels[@]})) && run_labels
for step in "${steps[@]}"; do
  case $step in
    flake) run_step flake scripts/flake.sh 3 ;;
    *) run_step "$step" "scripts/$step.sh" ;;
  esac
done
finish

#!/usr/bin/env bash
# Prepares the machine, builds the release preset and runs every test. Prints "N passed, N failed" last; the exit code
# is 0 only when tests ran and none failed.
#
#   scripts/test.sh                     everything
#   scripts/test.sh unit dist           only the tests with these labels (unit, dist, integration, fuzz)
#   TITAN_SKIP_SETUP=1 scripts/test.sh  without scripts/setup.sh and scripts/build.sh: tests what is built
#
# "fuzz" is scripts/fuzz.sh, which builds what it runs.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
exec </dev/null

labels=("$@")
((${#labels[@]})) || labels=(unit dist integration fuzz)
if [[ -z ${TITAN_SKIP_SETUP:-} ]]; then
  for step in scripts/setup.sh scripts/build.sh; do
    "$step" && continue
    echo "test.sh: $step failed, so no test ran" >&2
    echo "0 passed, 1 failed"
    exit 1
  done
fi

passed=0 failed=0
# Counts from ctest's own report: a test that could not be started or ran out of time is a failure there as well.
run_label() {
  local label=$1 jobs=1 report
  # Ranks of distributed tests share the cores already.
  [[ $label == unit ]] && jobs=2
  report=$(mktemp) || return 1
  ctest --test-dir build/release -L "^$label\$" --output-on-failure --no-tests=error -j "$jobs" \
    --output-junit "$report" ||
    echo "test.sh: tests with the label $label failed" >&2
  local total bad
  read -r total bad < <(python3 - "$report" <<'PYTHON'
import sys
import xml.etree.ElementTree

try:
    suite = xml.etree.ElementTree.parse(sys.argv[1]).getroot()
    cases = list(suite.iter("testcase"))
    # "disabled" and "notrun" count as failed: nothing is skipped silently.
    print(len(cases), sum(case.get("status") != "run" for case in cases))
except xml.etree.ElementTree.ParseError:
    print(1, 1)
PYTHON
  )
  rm -f "$report"
  # No test with a label that was asked for is a failure, not a success.
  ((total > 0)) || { total=1; bad=1; }
  passed=$((passed + total - bad))
  failed=$((failed + bad))
}

run_fuzz() {
  local report good bad
  report=$(mktemp) || return 1
  scripts/fuzz.sh | tee "$report"
  # Without its last line nothing is known, and that is a failure.
  read -r good bad < <(sed -nE '$s/^([0-9]+) passed, ([0-9]+) failed$/\1 \2/p' "$report") || { good=0; bad=1; }
  rm -f "$report"
  passed=$((passed + good))
  failed=$((failed + bad))
}

for label in "${labels[@]}"; do
  echo "test.sh: $label"
  case $label in
    fuzz) run_fuzz ;;
    *) run_label "$label" ;;
  esac
done
echo "$passed passed, $failed failed"
((failed == 0 && passed > 0))

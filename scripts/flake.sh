#!/usr/bin/env bash
# Looks for tests that fail now and then: scripts/flake.sh ROUNDS [LABEL|REGEX]. Runs what is built (build/release),
# by default the labels dist and integration, ROUNDS times with a busy loop on every core, while the programs under
# test are stopped for 0.1 to 1 second at random moments. With TITAN_FLAKE_STOPS=tests it stops the integration cases
# instead, for 0.9 of each second: compared with them, the programs are ten times as fast. Nothing is retried. Prints
# each test that failed, how often, and where its first output is; "N passed, N failed" last. The exit code is 0 only
# if tests ran and none failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
source scripts/marked.sh
exec </dev/null

rounds=${1:-}
stops=${TITAN_FLAKE_STOPS:-programs}
[[ $rounds =~ ^[1-9][0-9]*$ && $# -le 2 && $stops =~ ^(programs|tests)$ ]] || {
  echo "usage: [TITAN_FLAKE_STOPS=programs|tests] scripts/flake.sh ROUNDS [LABEL|REGEX]" >&2
  exit 2
}
case ${2:-} in
  "") chosen=(-L '^(dist|integration)$') ;;
  quick | unit | dist | integration | wide | long) chosen=(-L "^$2\$") ;;
  *) chosen=(-R "$2") ;;
esac

tests=$(realpath -m "${TITAN_TEST_DIR:-build/release}")
reports=$tests/flake
mark=TITAN_FLAKE_RUN=$$-$RANDOM$RANDOM
helpers=()
finish() {
  trap '' INT TERM
  if ((${#helpers[@]})); then
    kill "${helpers[@]}"
    wait "${helpers[@]}"
  fi 2>/dev/null
  end_marked "$mark"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# True if a process runs a program of the build and is not stopped. The cases below stop ranks themselves, which may
# not continue before the case says so.
stops_ranks='stopped_rank|peer_lost_beside_one_that_stands|resume_after_sigterm_under_nproc'
may_stop() {
  local program state
  program=$(readlink "/proc/$1/exe") && [[ $program == "$tests"/* ]] || return 1
  state=$(sed 's/.*) \(.\).*/\1/' "/proc/$1/stat") && [[ $state != [TtZ] ]] || return 1
  ! grep -qE "$stops_ranks" "/proc/$1/cmdline"
} 2>/dev/null

# Waits 0.1 to 1 second, without a process that could be left behind.
exec 4<> <(:)
pause() { local tenths=$((RANDOM % 10 + 1)); read -rt "$((tenths / 10)).$((tenths % 10))" -u 4; }

stop_programs() {
  local pid
  while true; do
    for pid in $(marked "$mark" | shuf); do
      { may_stop "$pid" && kill -STOP "$pid"; } || continue
      pause
      kill -CONT "$pid"
      break
    done 2>/dev/null
    pause
  done
}

# True if a process runs integration cases, not something that they started.
is_case() { tr '\0' '\n' <"/proc/$1/cmdline" 2>/dev/null | grep -qE 'integration/(run|case_server)\.py$'; }

stop_tests() {
  local pid cases
  while true; do
    cases=()
    for pid in $(marked "$mark"); do is_case "$pid" && cases+=("$pid"); done
    ((${#cases[@]})) && kill -STOP "${cases[@]}"
    read -rt 0.9 -u 4
    ((${#cases[@]})) && kill -CONT "${cases[@]}"
    read -rt 0.1 -u 4
  done 2>/dev/null
}

rm -rf "$reports"
mkdir -p "$reports"
for ((core = 0; core < $(nproc); core++)); do
  while true; do :; done &
  helpers+=("$!")
done
"stop_$stops" &
helpers+=("$!")

exec 3>&1
found=()
for ((round = 1; round <= rounds; round++)); do
  echo "flake.sh: round $round of $rounds"
  # Three times as many tests as cores: ranks wait for each other, and with more of them each is later.
  run_marked "$mark" ctest --test-dir "$tests" "${chosen[@]}" -j $((3 * $(nproc))) --output-on-failure --no-tests=error \
    --test-output-size-passed 1000000 --output-junit "$reports/$round.xml" >"$reports/$round.log" 2>&1
  [[ -f $reports/$round.xml ]] && found+=("$reports/$round.xml")
  grep -E 'tests passed|tests failed|No tests' "$reports/$round.log"
done
passed=0 failed=$((rounds - ${#found[@]}))
if ((${#found[@]})); then
  read -r passed bad < <(python3 scripts/ctest_report.py rounds "${found[@]}" 2>&3) || passed=0 bad=1
  failed=$((failed + bad))
fi
echo "$passed passed, $failed failed"
((failed == 0 && passed > 0))

#!/usr/bin/env bash
# Feeds broken checkpoint and model files to their readers, under the address and undefined-behavior sanitizers:
# scripts/fuzz.sh [SECONDS] [TARGET...]. SECONDS is per target (60 by default); the targets are those of
# tests/fuzz/targets.h (all by default). Builds the preset "fuzz", runs its fuzz_regression_test, then two targets at a
# time. Prints "N passed, N failed" last; the exit code is 0 if none failed.
#
# A target fails if an input crashes it, runs for more than a minute, allocates more than 64 MiB at once or 1 GiB in
# total, leaks, or causes an error that is not one of ours. The input stays in build/fuzz/findings; "reproduce" says how
# to run it.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
exec </dev/null

all=(metadata distcp folder safetensors toml sweep tokenizer_json tokenizer_config sentencepiece chat_template jsonl tokens
  metrics hub_index hub_config checksums)
seconds=60
if (($#)); then
  seconds=$1
  shift
fi
targets=("$@")
((${#targets[@]})) || targets=("${all[@]}")
[[ $seconds =~ ^[1-9][0-9]*$ ]] || {
  echo "usage: scripts/fuzz.sh [SECONDS] [TARGET...], of the targets ${all[*]}" >&2
  exit 2
}
for target in "${targets[@]}"; do
  [[ " ${all[*]} " == *" $target "* ]] && continue
  echo "fuzz.sh: no target $target; there are ${all[*]}" >&2
  exit 2
done

programs=build/fuzz/tests/fuzz
findings=build/fuzz/findings
seeds=build/fuzz/seeds
export OMP_NUM_THREADS=1
export ASAN_OPTIONS=detect_leaks=1
export LSAN_OPTIONS=suppressions=$PWD/scripts/lsan.supp:print_suppressions=0
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1

if ! { scripts/build.sh fuzz fuzz_make_seeds fuzz_regression_test "${targets[@]/#/fuzz_}" && "$programs/fuzz_make_seeds" "$seeds"; }; then
  echo "fuzz.sh: the fuzz build failed" >&2
  echo "0 passed, 1 failed"
  exit 1
fi
mkdir -p "$findings"

# New inputs go to a folder per target, from which later runs continue; seeds and corpus are only read.
fuzz() {
  local target=$1 grown=build/fuzz/grown/$1 dictionary=tests/fuzz/safetensors.dict
  [[ $target == metadata || $target == distcp || $target == folder ]] && dictionary=tests/fuzz/pickle.dict
  mkdir -p "$grown"
  local corpus=()
  [[ -d tests/fuzz/corpus/$target ]] && corpus=("tests/fuzz/corpus/$target")
  # The time limit is for a process that libFuzzer itself cannot end.
  timeout -k 5 $((seconds + 300)) "$programs/fuzz_$target" -max_total_time="$seconds" -timeout=60 -malloc_limit_mb=64 \
    -rss_limit_mb=1024 -max_len=16384 -print_final_stats=1 -dict="$dictionary" \
    -artifact_prefix="$findings/$target-" "$grown" "$seeds/$target" "${corpus[@]}" \
    >"$findings/$target.log" 2>&1
}

passed=0 failed=0
report() {
  local target=$1 code=$2 log=$findings/$1.log input
  if ((code == 0)); then
    passed=$((passed + 1))
    echo "ok     $target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs, $(sed -n 's/^stat::average_exec_per_sec: *//p' "$log") a second"
    return
  fi
  failed=$((failed + 1))
  echo "FAILED $target: exit code $code"
  grep -m 1 -A 30 -E 'ERROR: |runtime error|terminate called' "$log" | sed 's/^/  | /'
  input=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
  if [[ -n $input ]]; then
    echo "  input:     $PWD/$input"
    echo "  reproduce: ASAN_OPTIONS=$ASAN_OPTIONS UBSAN_OPTIONS=$UBSAN_OPTIONS $programs/fuzz_$target -timeout=60 -malloc_limit_mb=64 -rss_limit_mb=1024 $input"
    echo "  once mended, keep it: cp $input tests/fuzz/corpus/$target/"
  else
    tail -n 5 "$log" | sed 's/^/  | /'
  fi
}

# Deterministic inputs first: seeds, corpus, and each of their damages in turn.
if MALLOC_ARENA_MAX=1 timeout -k 5 1500 "$programs/fuzz_regression_test" >"$findings/regression.log" 2>&1; then
  passed=$((passed + 1))
  echo "ok     regression"
else
  failed=$((failed + 1))
  echo "FAILED regression: $programs/fuzz_regression_test"
  { grep -m 1 -A 30 -E 'ERROR: |runtime error|Failure$' "$findings/regression.log" || tail -n 30 "$findings/regression.log"; } | sed 's/^/  | /'
fi

for ((i = 0; i < ${#targets[@]}; i += 2)); do
  pair=("${targets[@]:i:2}")
  pids=()
  for target in "${pair[@]}"; do
    fuzz "$target" &
    pids+=($!)
  done
  for j in "${!pair[@]}"; do
    code=0
    wait "${pids[j]}" || code=$?
    report "${pair[j]}" "$code"
  done
done
echo "$passed passed, $failed failed"
((failed == 0 && passed > 0))

#!/usr/bin/env bash
# Checks the CUDA part on a machine with at least one GPU (written for H100 and H200). Prints "N passed, N failed" last.
#
#   scripts/gpu_check.sh            builds build/cuda and checks it
#   scripts/gpu_check.sh FOLDER     checks what FOLDER holds: titan-train, libtitan_cuda.so, cuda_device_test
#
# Exit code: 0 all passed, 1 some failed, 2 nothing could be checked (no GPU, no build, no assets).
#
# One GPU shows the kernel, the memory statistics, NCCL with one rank, and training on one rank. Sharding over NCCL needs two
# GPUs, because NCCL takes no two ranks on one device; with two or more, two ranks train as well.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2

refuse() { printf 'gpu_check: %s\n' "$*" >&2; exit 2; }

gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null) || gpus=
[[ -n $gpus ]] || refuse "nvidia-smi shows no GPU on this machine; there is nothing to check"
num_gpus=$(wc -l <<<"$gpus")
echo "gpu_check: $num_gpus GPU(s): ${gpus//$'\n'/, }"

build=${1:-}
if [[ -z $build ]]; then
  scripts/build.sh cuda || refuse "the build failed"
  build=build/cuda
fi
for file in titan-train libtitan_cuda.so cuda_device_test; do
  [[ -e $build/$file ]] || refuse "$build/$file is not there; build with scripts/build.sh cuda"
done
[[ -d assets/tokenizer && -d assets/corpus ]] || refuse "assets/ has no tokenizer and corpus; scripts/setup.sh makes them"

work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

# check NAME COMMAND...: one line, and the end of the output of what failed.
check() {
  local name=$1
  shift
  if "$@" >"$work/log" 2>&1; then
    passed=$((passed + 1))
    echo "ok     $name"
  else
    failed=$((failed + 1))
    echo "FAILED $name: $*"
    tail -n 20 "$work/log" | sed 's/^/  | /'
  fi
}

# A case that was skipped checked nothing.
device_case() {
  "$build/cuda_device_test" --gtest_filter="CudaDevice.$1" | tee "$work/gtest"
  [[ ${PIPESTATUS[0]} == 0 ]] && grep -q '\[  PASSED  \] 1 test' "$work/gtest"
}

# train RANKS NAME [words]: the debug model on CUDA.
train() {
  local ranks=$1 name=$2 launcher=()
  shift 2
  ((ranks == 1)) || launcher=(.venv/bin/torchrun --no-python --standalone --nproc-per-node "$ranks")
  "${launcher[@]}" "$build/titan-train" --config configs/debug.toml --training.device cuda --training.steps 60 \
    --lr_scheduler.warmup_steps 5 --metrics.log_freq 1 --debug.seed 1 --checkpoint.enable=false \
    --job.dump_folder "$work/$name" "$@"
}

# falls NAME: every loss is finite, it starts near ln(vocabulary) and the last five are lower by 1 at least.
falls() {
  python3 - "$work/$1/metrics.jsonl" <<'PYTHON'
import json, math, sys

rows = [json.loads(line) for line in open(sys.argv[1])]
losses = [row["loss"] for row in rows]
print(len(losses), "losses:", losses[0], "...", losses[-5:])
good = len(losses) == 60 and all(map(math.isfinite, losses)) and 7 < losses[0] < 9
good = good and sum(losses[-5:]) / 5 < losses[0] - 1 and rows[-1]["memory_peak_bytes"] > 0
sys.exit(not good)
PYTHON
}

train_and_fall() { train "$@" && falls "$2"; }

# The same run twice gives the same bits.
same_losses() {
  python3 - "$work/$1/metrics.jsonl" "$work/$2/metrics.jsonl" <<'PYTHON'
import json, sys

first, second = ([json.loads(line)["loss"] for line in open(path)] for path in sys.argv[1:])
sys.exit(first != second)
PYTHON
}

repeat() {
  export CUBLAS_WORKSPACE_CONFIG=:4096:8
  train 1 "$1-a" --debug.deterministic=true && train 1 "$1-b" --debug.deterministic=true && same_losses "$1-a" "$1-b"
}

mapfile -t cases < <("$build/cuda_device_test" --gtest_list_tests | sed -n 's/^  \([A-Za-z0-9_]*\).*/\1/p')
((${#cases[@]})) || refuse "$build/cuda_device_test lists no cases"
for name in "${cases[@]}"; do check "device: $name" device_case "$name"; done
check "training on one GPU: the loss falls" train_and_fall 1 one
check "training on one GPU: deterministic runs are equal" repeat again
if ((num_gpus >= 2)); then
  check "training on two GPUs: the loss falls" train_and_fall 2 two
else
  echo "left out: training on two GPUs (this machine has one)"
fi
if command -v compute-sanitizer >/dev/null; then
  check "compute-sanitizer: the kernel's accesses" compute-sanitizer --error-exitcode 1 "$build/cuda_device_test" --gtest_filter='CudaDevice.Fills*'
else
  echo "left out: compute-sanitizer is not in PATH"
fi
echo "$passed passed, $failed failed"
((failed == 0 && passed > 0))

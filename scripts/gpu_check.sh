#!/usr/bin/env bash
# Checks on a machine with at least one GPU (written for H100 and H200) what needs one. Prints "N passed, N failed" last.
#
#   scripts/gpu_check.sh            in an installed folder: checks it; in the repository: builds build/cuda and checks that
#   scripts/gpu_check.sh FOLDER     checks an installed folder (cmake --install), or a build folder
#   --json FILE                     also writes what was measured, with date and hardware
#
# Exit code: 0 all passed, 1 some failed, 2 nothing could be checked (no GPU, no build, no assets).
#
# One GPU shows the kernel, the memory statistics, NCCL with one rank, FSDP's streams on one rank, and sharding over ranks
# that share the GPU through Gloo (TITAN_DEVICE_COMM). Sharding over NCCL needs two: NCCL takes no two ranks on one device.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) || exit 2

refuse() { printf 'gpu_check: %s\n' "$*" >&2; exit 2; }

folder='' json=''
while (($#)); do
  case $1 in
    --json) [[ $# -gt 1 ]] || refuse "--json needs a file"; json=$(realpath -m -- "$2"); shift 2 ;;
    -*) refuse "unknown option $1; usage: gpu_check.sh [FOLDER] [--json FILE]" ;;
    *) folder=$(realpath -m -- "$1"); shift ;;
  esac
done

gpus=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null) || gpus=
[[ -n $gpus ]] || refuse "nvidia-smi shows no GPU on this machine; there is nothing to check"
num_gpus=$(wc -l <<<"$gpus")
echo "gpu_check: $num_gpus GPU(s): ${gpus//$'\n'/; }"

if [[ -z $folder && -d $here/libexec ]]; then
  folder=$here
elif [[ -z $folder ]]; then
  "$here/scripts/build.sh" cuda || refuse "the build failed"
  folder=$here/build/cuda
fi
if [[ -d $folder/libexec ]]; then
  program=$folder/bin/titan-train device_test=$folder/tests/cuda_device_test root=$folder python=${TITAN_PYTHON:-python3}
else
  program=$folder/titan-train device_test=$folder/cuda_device_test root=$here python=${TITAN_PYTHON:-$here/.venv/bin/python}
fi
for file in "$program" "$device_test"; do
  [[ -e $file ]] || refuse "$file is not there; build with scripts/build.sh cuda, or install with cmake --install"
done
[[ -d $root/assets/tokenizer && -d $root/assets/corpus/train ]] ||
  refuse "$root/assets has no tokenizer and corpus; scripts/setup.sh makes them"
cd "$root" || exit 2

work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
results=$work/results
mkdir -p "$results/runs"
touch "$results/checks" "$results/left_out"
echo "$gpus" >"$results/gpus"
"$program" --version >"$results/version" || refuse "$program does not start"
passed=0 failed=0

# check NAME COMMAND...: one line, and the end of the output of what failed.
check() {
  local name=$1 word=ok started=$SECONDS
  shift
  if "$@" >"$work/log" 2>&1; then
    passed=$((passed + 1))
    echo "ok     $name"
  else
    failed=$((failed + 1)) word=FAILED
    echo "FAILED $name: $*"
    tail -n 40 "$work/log" | sed 's/^/  | /'
  fi
  echo "$word $((SECONDS - started)) $name" >>"$results/checks"
}

leave_out() {
  echo "left out: $1"
  echo "$1" >>"$results/left_out"
}

rows() { "$python" "$here/scripts/gpu_check_rows.py" "$@"; }

# A case that was skipped checked nothing.
device_case() {
  "$device_test" --gtest_filter="CudaDevice.$1" | tee "$work/gtest"
  [[ ${PIPESTATUS[0]} == 0 ]] && grep -q '\[  PASSED  \] 1 test' "$work/gtest"
}

base=(--config configs/debug.toml --lr_scheduler.warmup_steps 5 --metrics.log_freq 1 --debug.seed 1 --checkpoint.enable=false
  --training.data_order torchtitan) # the order that the reference knows

# words RANKS NAME [words]: the command line of a run of the debug model, in the array `words`.
make_words() {
  local ranks=$1 name=$2
  shift 2
  words=("${base[@]}" --job.dump_folder "$work/$name" "$@")
  ((ranks == 1)) || words=(--nproc "$ranks" "${words[@]}")
}

# train RANKS NAME [words]: on CUDA; what was measured goes into the report.
train() {
  local words
  make_words "$1" "$2" --training.device cuda "${@:3}"
  "$program" "${words[@]}" && rows measured "$work/$2" >"$results/runs/$2.json"
}

train_and_fall() { train "$1" "$2" --training.steps 60 "${@:3}" && rows falls 60 "$work/$2"; }
share_gpu() { TITAN_DEVICE_COMM=gloo "$@"; }

few=(--training.steps 10 --training.local_batch_size 2)
fp32=(--training.mixed_precision_param float32)

# Deterministic runs: the same bits again, and with every launch blocking, where no order of streams can go wrong.
deterministic() {
  CUBLAS_WORKSPACE_CONFIG=:4096:8 train 1 "$1" "${few[@]}" --debug.deterministic=true
}
same_bits() { rows same "$work/$1" "$work/$2"; }
repeat() { deterministic again-a && deterministic again-b && same_bits again-a again-b; }
blocking() { CUDA_LAUNCH_BLOCKING=1 deterministic blocking && same_bits blocking again-a; }

# In fp32 a device and a CPU differ in the order of sums, some 1e-7 relative an operation; AdamW divides by the root of
# a squared gradient and carries that on over ten steps. A missing shard or factor moves a loss by 1e-2 and more.
device_tolerance=1e-3
as_on_cpu() {
  local ranks=$1 name=$2 words
  shift 2
  make_words "$ranks" "$name-cpu" --training.device cpu "${few[@]}" "${fp32[@]}" "$@"
  "$program" "${words[@]}" || return 1
  share_gpu train "$ranks" "$name" "${few[@]}" "${fp32[@]}" "$@" && rows close $device_tolerance "$work/$name" "$work/$name-cpu"
}

offload() {
  train 1 kept "${few[@]}" "${fp32[@]}" && train 1 offload "${few[@]}" "${fp32[@]}" --training.enable_cpu_offload=true &&
    rows close $device_tolerance "$work/offload" "$work/kept" && rows at_most 0.999 "$work/offload" "$work/kept"
}

# A trace with what the device did, and a snapshot of its memory; the training is that without.
profile() {
  local profiling=(--profiling.enable_profiling=true --profiling.profile_freq 4 --profiling.enable_memory_snapshot=true)
  deterministic plain && CUBLAS_WORKSPACE_CONFIG=:4096:8 train 1 profiled "${few[@]}" --debug.deterministic=true "${profiling[@]}" &&
    same_bits profiled plain && rows profiled 4 "$work/profiled"
}

# The 125M shape; peak reserved memory of one rank. The reference takes random tokens: it needs no tokenizer then, and
# memory does not depend on them.
shape=(--model.args.dim 768 --model.args.n_layers 12 --model.args.n_heads 12 --model.args.vocab_size 32000
  --training.local_batch_size 2 --training.seq_len 512 --training.steps 5)
memory() {
  train 1 memory-ours "${shape[@]}" || return 1
  "$python" -m torch.distributed.run --standalone --nproc-per-node 1 tests/reference/llama_fsdp2.py --device cuda --random-tokens \
    "${base[@]}" "${shape[@]}" --output "$work/memory-fsdp2/metrics.jsonl" || return 1
  rows measured "$work/memory-fsdp2" >"$results/runs/memory-fsdp2.json"
  rows at_most 1.0 "$work/memory-ours" "$work/memory-fsdp2"
}

tiny=(--training.steps 2 --training.local_batch_size 1 --training.seq_len 64 --model.args.dim 64 --model.args.n_layers 2
  --model.args.n_heads 4)
sanitizer=(compute-sanitizer --error-exitcode 1 --target-processes all)
# CUDA's own stream-ordered allocator instead of torch's: the sanitizer knows which stream allocated and freed a block, and
# reports a use on another stream that no event orders behind the allocation or before the free.
stream_order() {
  local words
  make_words "$1" "sanitized-$1" --training.device cuda "${tiny[@]}"
  PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync "${sanitizer[@]}" --tool memcheck --track-stream-ordered-races all \
    "$program" "${words[@]}"
}

mapfile -t cases < <("$device_test" --gtest_list_tests | sed -n 's/^  \([A-Za-z0-9_]*\).*/\1/p')
((${#cases[@]})) || refuse "$device_test lists no cases"
for name in "${cases[@]}"; do check "device: $name" device_case "$name"; done
check "one rank: the loss falls" train_and_fall 1 one
check "one rank: deterministic runs are equal" repeat
check "one rank: the same bits with every launch blocking" blocking
check "one rank: parameters, gradients and optimizer state on the host" offload
check "two ranks on one GPU over Gloo: the loss falls" share_gpu train_and_fall 2 two-shared
check "two ranks on one GPU over Gloo: the CPU's losses" as_on_cpu 2 zero3
check "two ranks on one GPU over Gloo, ZeRO-2: the CPU's losses" as_on_cpu 2 zero2 --parallelism.fsdp_reshard_after_forward never
check "four ranks on one GPU over Gloo, HSDP 2 x 2: the CPU's losses" as_on_cpu 4 hsdp \
  --parallelism.data_parallel_replicate_degree 2 --parallelism.data_parallel_shard_degree 2
check "one rank: a profile, and a memory snapshot" profile
check "one rank: no more memory than PyTorch's FSDP2" memory
if ((num_gpus >= 2)); then
  check "two GPUs over NCCL: the loss falls" train_and_fall 2 two
else
  leave_out "training on two GPUs over NCCL (this machine has one)"
fi
if command -v compute-sanitizer >/dev/null; then
  # No racecheck: it looks at shared memory, and our kernel uses none.
  check "compute-sanitizer: the kernel's accesses" "${sanitizer[@]}" "$device_test" --gtest_filter='CudaDevice.Fills*'
  check "compute-sanitizer: stream order of one rank" stream_order 1
  check "compute-sanitizer: stream order of two ranks on one GPU" share_gpu stream_order 2
else
  leave_out "compute-sanitizer is not in PATH"
fi
if [[ -n $json ]]; then rows report "$json" "$results" || refuse "cannot write $json"; fi
echo "$passed passed, $failed failed"
((failed == 0 && passed > 0))

#!/usr/bin/env bash
# Runs the checks that need GPUs, on a machine with at least one (written for H100 and H200), in at most ten minutes
# after the build. Prints a table of the results at the end, and "N passed, N failed, N skipped" last.
#
#   scripts/gpu_check.sh            in an installed folder: checks it; in the repository: builds build/cuda and checks that
#   scripts/gpu_check.sh FOLDER     checks an installed folder (cmake --install), or a build folder
#   --json FILE                     also writes the measurements, with date and hardware
#   --only REGEX                    runs only the checks whose name it matches (bash's =~); some need files of others
#
# TITAN_PEER_PYTHON, an interpreter that has torchtitan 0.2.2, adds TorchTitan's speed and memory on the same GPU.
# Exit code: 0 all passed, 1 some failed, 2 nothing could be checked (no GPU, no build, no assets).
#
# One GPU covers the kernels, memory, NCCL with one rank, FSDP's streams on one rank, and sharding over ranks that share
# the GPU through Gloo (TITAN_DEVICE_COMM). NCCL allows one rank per device, so checks of 2, 4 and 8 ranks over NCCL are
# skipped on a machine with fewer GPUs, each by its name.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) || exit 2

refuse() { printf 'gpu_check: %s\n' "$*" >&2; exit 2; }

folder='' json='' only='' path=''
while (($#)); do
  case $1 in
    --json) [[ $# -gt 1 ]] || refuse "--json needs a file"; json=$(realpath -m -- "$2"); shift 2 ;;
    --only) [[ $# -gt 1 ]] || refuse "--only needs a regular expression"; only=$2; shift 2 ;;
    -*) refuse "unknown option $1; usage: gpu_check.sh [FOLDER] [--json FILE] [--only REGEX]" ;;
    *) folder=$(realpath -m -- "$1"); shift ;;
  esac
done

gpus=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null) || gpus=
[[ -n $gpus ]] || refuse "nvidia-smi shows no GPU on this machine; there is nothing to check"
num_gpus=$(wc -l <<<"$gpus")
if [[ -n ${CUDA_VISIBLE_DEVICES-} ]]; then # the program sees only these
  IFS=, read -ra visible <<<"$CUDA_VISIBLE_DEVICES"
  ((${#visible[@]} >= num_gpus)) || num_gpus=${#visible[@]}
fi
echo "gpu_check: $num_gpus GPU(s): ${gpus//$'\n'/; }"

if [[ -z $folder && -e $here/lib/libtitan_engine.so ]]; then
  folder=$here
elif [[ -z $folder ]]; then
  "$here/scripts/build.sh" cuda || refuse "the build failed"
  folder=$here/build/cuda
fi
if [[ -e $folder/lib/libtitan_engine.so ]]; then
  program=$folder/bin/titan-train device_test=$folder/tests/cuda_device_test root=$folder python=${TITAN_PYTHON:-python3}
  [[ -e $program ]] || program=$(command -v titan-train) || refuse "titan-train is not on the PATH" # pip's place for it
  # The program finds torch by itself, the device test by this.
  torch=${TITAN_TORCH:-$folder/../torch}
  [[ -e $torch/lib/libtorch_cpu.so ]] || torch=$("$python" -c 'import sys; sys.path[:] = [p for p in sys.path if p]
import importlib.util as i; spec = i.find_spec("torch"); print(spec.submodule_search_locations[0] if spec else "")')
  [[ -e $torch/lib/libtorch_cpu.so ]] || refuse "$python has no torch; name a Python that has it in TITAN_PYTHON"
  for libraries in "$folder/lib" "$torch/lib" "$torch"/../nvidia/*/lib; do path=${path:+$path:}$libraries; done
  export LD_LIBRARY_PATH=$path${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
else
  program=$folder/titan-train device_test=$folder/cuda_device_test root=$here python=${TITAN_PYTHON:-$here/.venv/bin/python}
fi
for file in "$program" "$device_test"; do
  [[ -e $file ]] || refuse "$file is not there; build with scripts/build.sh cuda, or install with cmake --install"
done
[[ -d $root/assets/tokenizer && -d $root/assets/corpus/train && -d $root/assets/corpus/validation ]] ||
  refuse "$root/assets has no tokenizer and corpus; scripts/setup.sh makes them"
peer=${TITAN_PEER_PYTHON:-}
# The path is made absolute, but a link stays one: a virtual environment is where its link is.
[[ $peer != */* ]] || peer=$(realpath -s -m -- "$peer")
[[ -z $peer ]] || "$peer" -c 'import importlib.util as i; raise SystemExit(i.find_spec("torchtitan") is None)' 2>/dev/null ||
  refuse "TITAN_PEER_PYTHON=$peer has no torchtitan; unset it, or install benchmarks/requirements-torchtitan.txt there"
cd "$root" || exit 2

work=$(mktemp -d) || exit 2
running=''
trap 'rm -rf "$work"' EXIT
trap '[[ -z $running ]] || kill "$running" 2>/dev/null; exit 130' INT TERM
results=$work/results
mkdir -p "$results/runs"
touch "$results/checks" "$results/skipped"
echo "$gpus" >"$results/gpus"
"$program" --version >"$results/version" || refuse "$program does not start"
mapfile -t cases < <("$device_test" --gtest_list_tests | sed -n 's/^  \([A-Za-z0-9_]*\).*/\1/p')
((${#cases[@]})) || refuse "$device_test lists no cases"

# shellcheck source=scripts/gpu_check_runs.sh
. "$here/scripts/gpu_check_runs.sh"
# shellcheck source=scripts/gpu_check_ranks.sh
. "$here/scripts/gpu_check_ranks.sh"
make_inputs || refuse "$python cannot prepare the data"

# Quick and informative checks come first: checks for which the ten minutes have no time are skipped at the end.
for name in "${cases[@]}"; do check 30 "device: $name" device_case "$name"; done
check 60 "one rank: the loss falls" train_and_fall 1 one
check 60 "one rank: deterministic runs are equal" repeat 1 again
check 60 "one rank: the same bits with every launch blocking" blocking
check 60 "one rank: parameters, gradients and optimizer state on the host" offload
check 60 "one rank: validation, the CPU's losses" as_on_cpu 1 validated "${validation[@]}"
check 60 "one rank, attention within documents: the CPU's losses" as_on_cpu 1 documents "${documents[@]}"
check 60 "one rank, own kernels: the CPU's losses" as_on_cpu 1 own "${own_kernels[@]}"
check 60 "one rank: a save and a resume leave the losses as they are" resume 1 disabled
check 60 "one rank: an asynchronous save and a resume leave the losses as they are" resume 1 async
check 60 "one rank: a profile, and a memory snapshot" profile
check 90 "one rank: no more memory than PyTorch's FSDP2" memory
check_shared_gpu
check_several_gpus
check 60 "1B: the same bits with every launch blocking" bits 1 plain
check 60 "1B, accumulation over 2 microbatches: the same bits with every launch blocking" bits 1 accumulated \
  --training.global_batch_size 8
check 60 "1B, full recomputation: the same bits with every launch blocking" bits 1 full --activation_checkpoint.mode full
check 60 "1B, recomputation by operator: the same bits with every launch blocking" bits 1 by-operator \
  --activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option op
check 10 "1B: recomputation changes no bit" recomputation
check 60 "1B, float16: the same bits with every launch blocking" bits 1 float16 --training.mixed_precision_param float16
check 90 "1B, four of its layers, state on the host: the same bits with every launch blocking" bits 1 offloaded \
  --training.enable_cpu_offload=true --model.args.n_layers 4
check 60 "1B, own kernels: the same bits with every launch blocking" bits 1 own "${own_kernels[@]}"
check 60 "1B: speed" speed
check 60 "1B, own kernels: speed and memory" speed_of_own
check 60 "1B: no more memory than the dry run says" predictions
check 60 "1B: writes tokens after a prompt" writes
check 60 "1B: what does not fit ends with its reason" out_of_memory 1
if [[ -n $peer ]]; then
  check 90 "1B: beside TorchTitan, eager" beside_torchtitan eager
  check 150 "1B: beside TorchTitan, compiled" beside_torchtitan compiled --compile.enable
else
  skip "1B: beside TorchTitan" "TITAN_PEER_PYTHON names no Python that has it"
fi
if command -v compute-sanitizer >/dev/null; then
  check 60 "compute-sanitizer: the accesses of our kernels" sanitized memcheck "$device_test" --gtest_filter='CudaDevice.F*'
  check 90 "compute-sanitizer: stream order of one rank" stream_order 1
  check 90 "compute-sanitizer: stream order of two ranks on one GPU" share_gpu stream_order 2
  check 90 "compute-sanitizer: races in shared memory of our kernels" races
else
  skip "compute-sanitizer" "it is not in PATH"
fi
if [[ -n $json ]]; then rows report "$json" "$results" || refuse "cannot write $json"; fi
rows table "$results"
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0 && passed > 0))

# This file has the checks of scripts/gpu_check.sh and the runs that they are made of; gpu_check_ranks.sh has those of
# several ranks. gpu_check.sh reads it after it has set here, program, device_test, python, peer, only, work, results
# and running.
# shellcheck shell=bash disable=SC2154,SC2034

# ------------------------------------------------------------------------------------------------ counting and time

passed=0 failed=0 skipped=0
# A process has ten more seconds to end after its time is up, so the total is less than ten minutes.
allowed_seconds=580
# Tests set TITAN_TIME_SCALE, because they may run on a busy machine.
scale=${TITAN_TIME_SCALE:-1} scale=${scale%.*}
end=$((SECONDS + allowed_seconds * scale)) deadline=$end

# check SECONDS NAME COMMAND...: prints one line, and the end of the output of a failed COMMAND. COMMAND reports its
# findings in lines that begin with "found: ".
check() {
  local limit=$(($1 * scale)) name=$2 word=passed started=$SECONDS found
  shift 2
  [[ -z $only || $name =~ $only ]] || return 0
  if ((SECONDS >= end)); then
    skip "$name" "the ten minutes are over"
    return
  fi
  deadline=$((started + limit < end ? started + limit : end))
  if "$@" >"$work/log" 2>&1; then
    passed=$((passed + 1))
    echo "ok     $name"
  elif ((SECONDS >= deadline && deadline == end)); then
    skip "$name" "the ten minutes were over before its end"
    return
  elif ((SECONDS >= deadline)) && [[ $name == compute-sanitizer* ]]; then
    # Slowness under the sanitizer says nothing about the program.
    skip "$name" "needs more than $limit seconds"
    return
  else
    failed=$((failed + 1)) word=FAILED
    ((SECONDS < deadline)) || echo "found: stopped after $limit seconds" >>"$work/log"
    echo "FAILED $name: $*"
    tail -n 40 "$work/log" | sed 's/^/  | /'
  fi
  found=$(sed -n 's/^found: //p' "$work/log" | paste -sd ';' | sed 's/;/; /g')
  printf '%s\t%s\t%s\t%s\n' "$word" $((SECONDS - started)) "$name" "$found" >>"$results/checks"
}

# skip NAME REASON: a check that cannot be made here is in the table and the report, too.
skip() {
  [[ -z $only || $1 =~ $only ]] || return 0
  skipped=$((skipped + 1))
  echo "skipped $1: $2"
  printf '%s\t%s\n' "$1" "$2" >>"$results/skipped"
}

# Every process of a check runs under this, which ends it and all that it started when the check's time is up. It is
# waited for in the background, so that Ctrl-C is obeyed at once.
within() {
  local left=$((deadline - SECONDS)) status
  ((left > 0)) || return 124
  timeout -k 10 "$left" "$@" &
  running=$!
  wait "$running"
  status=$?
  running=''
  return $status
}

rows() { "$python" "$here/scripts/gpu_check_rows.py" "$@"; }

# ------------------------------------------------------------------------------------------------ small runs

# A skipped case has checked nothing.
device_case() {
  within "$device_test" --gtest_filter="CudaDevice.$1" >"$work/gtest"
  local status=$?
  cat "$work/gtest"
  ((status == 0)) && grep -q '\[  PASSED  \] 1 test' "$work/gtest"
}

base=(--config configs/debug.toml --lr_scheduler.warmup_steps 5 --metrics.log_freq 1 --debug.seed 1 --checkpoint.enable=false
  --training.data_order torchtitan) # the order that the reference knows

# make_words RANKS NAME [words]: the command line of a run of the debug model, in the array `words`.
make_words() {
  local ranks=$1 name=$2
  shift 2
  words=("${base[@]}" --job.dump_folder "$work/$name" "$@")
  ((ranks == 1)) || words=(--nproc "$ranks" "${words[@]}")
}

# train RANKS NAME [words]: trains on CUDA; the measurements go into the report.
train() {
  local words
  make_words "$1" "$2" --training.device cuda "${@:3}"
  printf '%s\n' "${words[@]}" >"$work/$2.words"
  within "$program" "${words[@]}" && rows measured "$work/$2" >"$results/runs/$2.json"
}

train_and_fall() { train "$1" "$2" --training.steps 60 "${@:3}" && rows falls 60 "$work/$2"; }

few=(--training.steps 10 --training.local_batch_size 2)
fp32=(--training.mixed_precision_param float32)

# Deterministic runs: the same bits again, also with blocking launches, where streams cannot get out of order.
# deterministic RANKS NAME [words]
deterministic() { CUBLAS_WORKSPACE_CONFIG=:4096:8 train "$1" "$2" --debug.deterministic=true "${@:3}"; }
same_bits() {
  rows same "$work/$1" "$work/$2" && return
  "$program" compare "$work/$1" "$work/$2"
  return 1
}
# repeat RANKS NAME [words]
repeat() {
  deterministic "$1" "$2-a" "${few[@]}" "${@:3}" && deterministic "$1" "$2-b" "${few[@]}" "${@:3}" && same_bits "$2-a" "$2-b"
}
blocking() { CUDA_LAUNCH_BLOCKING=1 deterministic 1 blocking "${few[@]}" && same_bits blocking again-a; }

# In fp32 a device and a CPU differ in the order of sums, some 1e-7 relative per operation; AdamW divides by the root
# of a squared gradient and amplifies that over ten steps. A missing shard or factor moves a loss by 1e-2 and more.
device_tolerance=1e-3
# A CPU and a GPU draw different weights from one seed (nn/init.h), so both start from those that one CPU rank draws.
from_one_seed=(--checkpoint.enable=true --checkpoint.load_only=true --checkpoint.initial_load_path "$work/seed/checkpoint/step-0")
make_seed() {
  local words
  [[ ! -d $work/seed ]] || return 0
  make_words 1 seed --training.device cpu --checkpoint.enable=true --checkpoint.create_seed_checkpoint=true
  within "$program" "${words[@]}"
}
# as_on_cpu RANKS NAME [words]
as_on_cpu() {
  local ranks=$1 name=$2 words
  shift 2
  make_seed || return 1
  make_words "$ranks" "$name-cpu" --training.device cpu "${few[@]}" "${fp32[@]}" "${from_one_seed[@]}" "$@"
  within "$program" "${words[@]}" || return 1
  train "$ranks" "$name" "${few[@]}" "${fp32[@]}" "${from_one_seed[@]}" "$@" &&
    rows close $device_tolerance "$work/$name" "$work/$name-cpu"
}

# A data set with documents of eight lines. Documents of the corpus are long, and attention across documents would
# move losses by less than the tolerance; here it moves the gradient's norm by 1e-2 in the first step. A tokenizer
# with one token per byte comes with it, because TorchTitan cannot read the tokenizer.model of assets/.
make_inputs() { rows inputs "$work/inputs" assets/corpus/train; }
inputs=(--training.dataset c4_test --training.dataset_path "$work/inputs/corpus")
documents=(--model.flavor debugmodel_varlen_attn "${inputs[@]}")
validation=(--validation.enable=true --validation.dataset text --validation.dataset_path assets/corpus/validation
  --validation.freq 5 --validation.steps 4 --validation.local_batch_size 2 --validation.seq_len 256)
own_kernels=(--cuda.kernels own)

offload() {
  train 1 kept "${few[@]}" "${fp32[@]}" && train 1 offload "${few[@]}" "${fp32[@]}" --training.enable_cpu_offload=true &&
    rows close $device_tolerance "$work/offload" "$work/kept" && rows at_most 0.999 "$work/offload" "$work/kept"
}

# A trace shows what the device did, and a snapshot its memory; losses equal those of a run without either.
profile() {
  local profiling=(--profiling.enable_profiling=true --profiling.profile_freq 4 --profiling.enable_memory_snapshot=true)
  [[ -s $work/again-a/metrics.jsonl ]] || deterministic 1 again-a "${few[@]}" || return 1
  deterministic 1 profiled "${few[@]}" "${profiling[@]}" && same_bits profiled again-a && rows profiled 4 "$work/profiled"
}

# These 46M parameters are enough that an asynchronous save is still copying while the next step computes, and few
# enough that a disk takes them in a second.
middle=("${few[@]}" --training.seq_len 512 --model.args.dim 768 --model.args.n_layers 6 --model.args.n_heads 12
  --debug.checksum_freq 5)
# A run that saves after step 5, and one that resumes from there, have the losses of a run that did neither, to the bit.
# resume RANKS MODE
resume() {
  local ranks=$1 mode=$2 whole=whole-$1 saved=saved-$1-$2 resumed=resumed-$1-$2 status
  [[ -s $work/$whole/metrics.jsonl ]] || deterministic "$ranks" "$whole" "${middle[@]}" || return 1
  deterministic "$ranks" "$saved" "${middle[@]}" --checkpoint.enable=true --checkpoint.interval 5 \
    --checkpoint.async_mode "$mode" --checkpoint.last_save_model_only=true && same_bits "$saved" "$whole" &&
    deterministic "$ranks" "$resumed" "${middle[@]}" --checkpoint.enable=true --checkpoint.load_only=true \
      --checkpoint.initial_load_path "$work/$saved/checkpoint/step-5" --checkpoint.initial_load_model_only=false &&
    rows begins 6 "$work/$resumed" && same_bits "$resumed" "$whole"
  status=$?
  rm -rf "$work/$saved/checkpoint"
  return $status
}

# The 125M shape; peak reserved memory of one rank. The reference takes random tokens: it then needs no tokenizer, and
# memory does not depend on them.
shape=(--model.args.dim 768 --model.args.n_layers 12 --model.args.n_heads 12 --model.args.vocab_size 32000
  --training.local_batch_size 2 --training.seq_len 512 --training.steps 5)
memory() {
  train 1 memory-ours "${shape[@]}" || return 1
  within "$python" -m torch.distributed.run --standalone --nproc-per-node 1 tests/reference/llama_fsdp2.py --device cuda \
    --random-tokens "${base[@]}" "${shape[@]}" --output "$work/memory-fsdp2/metrics.jsonl" || return 1
  rows measured "$work/memory-fsdp2" >"$results/runs/memory-fsdp2.json"
  rows at_most 1.0 "$work/memory-ours" "$work/memory-fsdp2"
}

# ------------------------------------------------------------------------------------------------ runs of 1.1B parameters

# Kernels of this model take longer than their launches, so that the host runs ahead of the device. With the debug model
# a kernel has ended before the next one is queued, and a missing order between streams does not show. TorchTitan takes
# the sizes of a model from a table, and torchtitan_gpu.py takes them from TITAN_PEER_ARGS.
sizes=() peer_sizes=
for size in dim=2048 n_layers=16 n_heads=32 n_kv_heads=8 ffn_dim_multiplier=1.5 vocab_size=32000; do
  sizes+=("--model.args.${size%=*}" "${size#*=}") peer_sizes+=", \"${size%=*}\": ${size#*=}"
done
# Both programs take these.
large=(--model.name llama3 --model.flavor debugmodel --model.hf_assets_path "$work/inputs/tokenizer" "${inputs[@]}"
  --optimizer.lr 3e-4 --lr_scheduler.warmup_steps 5 --training.local_batch_size 4 --training.seq_len 2048 --training.steps 20
  --activation_checkpoint.mode none --metrics.log_freq 1)
ours=("${sizes[@]}" --validation.prompts=)

# Reading a step's numbers waits for the device, which would hide a missing order, so only steps 1, 10 and 20 are logged.
# Whatever went wrong before shows in the checksums of all gradients and weights of step 20.
# bits RANKS NAME [words]
bits() {
  local name=1b-$2 words=("${large[@]}" "${ours[@]}" --metrics.log_freq 10 --debug.checksum_freq 20 "${@:3}")
  deterministic "$1" "$name" "${words[@]}" && CUDA_LAUNCH_BLOCKING=1 deterministic "$1" "$name-blocking" "${words[@]}" &&
    same_bits "$name" "$name-blocking"
}
recomputation() { same_bits 1b-full 1b-plain && same_bits 1b-by-operator 1b-plain; }

# TorchTitan's start script sets the allocator like this, so both programs get it.
expandable() { PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True "$@"; }
speed() { expandable train 1 1b-speed "${large[@]}" "${ours[@]}" && rows speed "$results/runs/1b-speed.json"; }
# Reports what the own kernels save, and checks that they take no more memory.
speed_of_own() {
  expandable train 1 1b-own-speed "${large[@]}" "${ours[@]}" "${own_kernels[@]}" &&
    rows speed "$results/runs/1b-own-speed.json" && rows at_most 1.0 "$work/1b-own-speed" "$work/1b-speed"
}

# A configuration fits if the prediction is at most 95 % of the device's memory (docs/memory.md), so a prediction that
# is more than 1 / 0.95 below the run may promise what does not fit. Both numbers are of the caching allocator:
# neither includes the CUDA context or NCCL, and workspaces inside operators are only in the run's.
allowed_over_prediction=1.053
predict() {
  local words run=$results/runs/$1.json
  [[ -s $run ]] || { echo "found: $1 did not end"; return 1; }
  mapfile -t words <"$work/$1.words"
  within "$program" "${words[@]}" --dry-run --json >"$work/$1.dry-run" || return 1
  rows predicted $allowed_over_prediction "$run" "$work/$1.dry-run"
}
predictions() {
  local name status=0
  for name in plain accumulated full by-operator float16 offloaded own; do predict "1b-$name" || status=1; done
  for name in speed own-speed; do expandable predict "1b-$name" || status=1; done
  return $status
}

# Reports what a token costs after a prompt, in bfloat16: attention sees another length of keys for each.
writes() {
  train 1 1b-written "${large[@]}" "${ours[@]}" --training.steps 2 --checkpoint.enable=true \
    --checkpoint.last_save_model_only=true || return 1
  local status=0
  within "$program" generate --checkpoint "$work/1b-written" --prompt "def forward(" --max-tokens 200 --temperature 0 \
    >"$work/1b-text" 2>"$work/1b-generate" || status=1
  cat "$work/1b-generate"
  sed -n 's/^.*: \([0-9]* tokens in .*tokens\/s\).*/found: \1/p' "$work/1b-generate"
  rm -rf "$work/1b-written"
  return $status
}

# ends_with CODE RANKS NAME TEXT [words]: true if a run ends with this exit code, says the TEXT (a regular expression),
# and no process of it is left.
ends_with() {
  local code=$1 ranks=$2 name=$3 text=$4 words status
  make_words "$ranks" "$name" --training.device cuda "${@:5}"
  within "$program" "${words[@]}" >"$work/$name.log" 2>&1
  status=$?
  tail -n 30 "$work/$name.log"
  echo "found: exit code $status"
  grep -oE "$text" "$work/$name.log" | sed 's/^/found: /' | head -n 1
  ((status == code)) && grep -qE "$text" "$work/$name.log" && none_left "$name"
}

# The command line of every rank names the run's folder. A process that has ended and is not waited for has none.
none_left() {
  local file words status=0
  for file in /proc/[0-9]*/cmdline; do
    mapfile -d '' words <"$file" || continue # it ended meanwhile
    [[ " ${words[*]} " != *" $work/$1 "* ]] || { echo "found: still there: ${file//[!0-9]/}"; status=1; }
  done 2>/dev/null
  return $status
}

# A run that cannot fit and ignores the forecast ends with exit code 1, the step and what to change.
# out_of_memory RANKS
out_of_memory() {
  ends_with 1 "$1" "too-large-$1" 'out of memory in step 1: there is no room for .*local_batch_size' "${large[@]}" "${ours[@]}" \
    --training.local_batch_size 64 --no-preflight
}

# beside_torchtitan NAME [words]: the same steps on the same tokens. Speed and memory do not depend on the weights, and
# each program draws its own.
beside_torchtitan() {
  local name=1b-torchtitan-$1
  shift
  mkdir -p "$work/$name"
  TITAN_PEER_ARGS="{${peer_sizes#, }}" HF_HUB_OFFLINE=1 HF_HOME=$work/hf TORCHINDUCTOR_CACHE_DIR=$work/inductor \
    expandable within "$peer" -m torch.distributed.run --standalone --nproc-per-node 1 tests/reference/torchtitan_gpu.py \
    --job.dump_folder "$work/$name" --metrics.disable_color_printing "${large[@]}" "$@" >"$work/$name/log" 2>&1 || {
    tail -n 30 "$work/$name/log"
    return 1
  }
  rows torchtitan 20 "$work/$name/log" "$results/runs/$name.json" "$results/runs/1b-speed.json"
}

# ------------------------------------------------------------------------------------------------ compute-sanitizer

tiny=(--training.steps 2 --training.local_batch_size 1 --training.seq_len 64 --model.args.dim 64 --model.args.n_layers 2
  --model.args.n_heads 4)
# Errors that CUDA calls return are left to the caller: libraries ask for what a device may not have. Findings are
# printed before the stacks, of which a log shows the end.
sanitized() {
  local options=() status
  [[ $1 != memcheck ]] || options=(--report-api-errors no)
  within compute-sanitizer --error-exitcode 1 --target-processes all "${options[@]}" --tool "$@" >"$work/sanitizer"
  status=$?
  cat "$work/sanitizer"
  ((status == 0)) || grep -m 3 -A 2 -E '^=+ (Invalid|Program hit|Error|Race|Potential|.* hazard)' "$work/sanitizer" |
    sed -n 's/^=* */found: /p'
  return $status
}
# CUDA's own stream-ordered allocator instead of torch's: the sanitizer knows which stream allocated and freed a block, and
# reports a use on another stream that no event orders behind the allocation or before the free.
stream_order() {
  local words
  make_words "$1" "sanitized-$1" --training.device cuda "${tiny[@]}"
  PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync sanitized memcheck --track-stream-ordered-races all "$program" "${words[@]}"
}
# Checks only this program's kernels, which the device test launches at every size: library kernels are not ours to
# judge, and take minutes.
races() {
  sanitized racecheck --kernel-name kernel_substring=titan "$device_test" --gtest_filter='CudaDevice.Fused*'
  local status=$?
  sed -n 's/^=* *RACECHECK SUMMARY: /found: /p' "$work/sanitizer"
  ((status == 0)) && grep -q 'RACECHECK SUMMARY' "$work/sanitizer"
}

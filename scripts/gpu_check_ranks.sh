# This file has the checks of scripts/gpu_check.sh with several ranks, which share a GPU or have one each. gpu_check.sh
# reads it after gpu_check_runs.sh, and after it has set num_gpus.
# shellcheck shell=bash disable=SC2154

# The caller's value would let Gloo carry what is checked over NCCL.
unset TITAN_DEVICE_COMM

always=(--parallelism.fsdp_reshard_after_forward always)
never=(--parallelism.fsdp_reshard_after_forward never)
over_neighbours=(--parallelism.fsdp_reshard_after_forward 2)
hsdp=(--parallelism.data_parallel_replicate_degree 2 --parallelism.data_parallel_shard_degree 2)
tensor_parallel=(--parallelism.tensor_parallel_degree 2 --validation.prompts=) # prompts need a model on one rank
overlapped=("${tensor_parallel[@]}" --parallelism.enable_async_tensor_parallel=true)
context_parallel=(--parallelism.context_parallel_degree 2 --validation.prompts=)
ring=(--parallelism.context_parallel_rotate_method alltoall)
# Two microbatches per step, since the local batch is 2.
pipeline_parallel=(--parallelism.pipeline_parallel_degree 2 --validation.prompts=)

# ------------------------------------------------------------------------------------------------ one GPU for all

share_gpu() {
  local first=${CUDA_VISIBLE_DEVICES:-0}
  CUDA_VISIBLE_DEVICES=${first%%,*} TITAN_DEVICE_COMM=gloo "$@"
}

# sharing RANKS NAME COMMAND...: a check of ranks that share a GPU, if there is not one for each: NCCL then checks the
# same.
sharing() {
  local name="$2"
  if (($1 <= num_gpus)); then
    skip "$name" "NCCL does it here: $num_gpus GPUs"
  else
    check 60 "$name" share_gpu "${@:3}"
  fi
}

check_shared_gpu() {
  local two="two ranks on one GPU over Gloo" four="four ranks on one GPU over Gloo"
  sharing 2 "$two: the loss falls" train_and_fall 2 two-shared
  sharing 2 "$two: the CPU's losses" as_on_cpu 2 zero3
  sharing 2 "$two, ZeRO-2: the CPU's losses" as_on_cpu 2 zero2 "${never[@]}"
  sharing 2 "$two, attention within documents and validation: the CPU's losses" as_on_cpu 2 two-documents \
    "${documents[@]}" "${validation[@]}"
  sharing 2 "$two, tensor parallel: the CPU's losses" as_on_cpu 2 tensor "${tensor_parallel[@]}"
  sharing 4 "$four, HSDP 2 x 2: the CPU's losses" as_on_cpu 4 hsdp "${hsdp[@]}"
  sharing 4 "$four, resharded over two neighbours: the CPU's losses" as_on_cpu 4 neighbours "${over_neighbours[@]}"
  sharing 4 "$four, tensor parallel 2 x FSDP 2, overlapped: the CPU's losses" as_on_cpu 4 two-axes "${overlapped[@]}"
}

# ------------------------------------------------------------------------------------------------ a GPU per rank

number_words=([2]=two [4]=four [8]=eight)
# on_gpus RANKS WHAT COMMAND...: a check of ranks that have a GPU each.
on_gpus() {
  local name="${number_words[$1]} GPUs over NCCL$2"
  if (($1 > num_gpus)); then skip "$name" "needs $1 GPUs"; else check 60 "$name" "${@:3}"; fi
}

# NCCL and Gloo add in different orders, as a GPU and a CPU do, so device_tolerance holds here, too. The CPU has the same
# mesh: another number of data parallel ranks would read other samples.
check_losses_of_several_gpus() {
  local theirs="the CPU's losses"
  on_gpus 2 ": the loss falls" train_and_fall 2 two
  on_gpus 2 ", ZeRO-3: $theirs" as_on_cpu 2 nccl-zero3 "${always[@]}"
  on_gpus 2 ", ZeRO-2: $theirs" as_on_cpu 2 nccl-zero2 "${never[@]}"
  on_gpus 2 ", attention within documents and validation: $theirs" as_on_cpu 2 nccl-documents "${documents[@]}" \
    "${validation[@]}"
  on_gpus 2 ", tensor parallel: $theirs" as_on_cpu 2 nccl-tensor "${tensor_parallel[@]}"
  on_gpus 2 ", tensor parallel, overlapped: $theirs" as_on_cpu 2 nccl-overlapped "${overlapped[@]}"
  on_gpus 2 ", context parallel: $theirs" as_on_cpu 2 nccl-context "${context_parallel[@]}"
  on_gpus 2 ", context parallel in a ring: $theirs" as_on_cpu 2 nccl-ring "${context_parallel[@]}" "${ring[@]}"
  on_gpus 2 ", pipeline parallel: $theirs" as_on_cpu 2 nccl-pipeline "${pipeline_parallel[@]}"
  on_gpus 4 ", HSDP 2 x 2: $theirs" as_on_cpu 4 nccl-hsdp "${hsdp[@]}"
  on_gpus 4 ", resharded over two neighbours: $theirs" as_on_cpu 4 nccl-neighbours "${over_neighbours[@]}"
  on_gpus 4 ", tensor parallel 2 x FSDP 2, overlapped: $theirs" as_on_cpu 4 nccl-two-axes "${overlapped[@]}"
  on_gpus 8 ": the loss falls" train_and_fall 8 eight
  on_gpus 8 ", pipeline 2 x FSDP 2 x tensor parallel 2: $theirs" as_on_cpu 8 nccl-three-axes "${pipeline_parallel[@]}" \
    "${tensor_parallel[@]}"
}

# A fault comes at the 20th reduce-scatter of rank 1, when the first step, whose limits are others, is over.
fault_of_rank_1() { TITAN_FAULT_POINT="rank=1 at=reduce_scatter n=20 do=$1" "${@:2}"; }
killed_rank() { fault_of_rank_1 kill ends_with 137 2 killed 'rank 1: ended without reporting an error' "${few[@]}"; }
# The other rank's host goes on, and its GPU waits in the collective that rank 1 does not start.
hanging_rank() {
  fault_of_rank_1 hang ends_with 3 2 hanging 'stops: rank 1: has been in step for .*' "${few[@]}" \
    --comm.train_timeout_seconds 10 &&
    grep -q 'a collective did not end. What the ranks do:' "$work/hanging.log"
}

check_several_gpus() {
  check_losses_of_several_gpus
  on_gpus 2 ": deterministic runs are equal" repeat 2 nccl-again
  on_gpus 2 ": a save and a resume leave the losses as they are" resume 2 disabled
  on_gpus 2 ": an asynchronous save and a resume leave the losses as they are" resume 2 async
  on_gpus 2 ": a killed rank ends all" killed_rank
  on_gpus 2 ": a hang is told and ends" hanging_rank
  on_gpus 2 ", 1B: what does not fit ends with its reason" out_of_memory 2
  on_gpus 2 ", 1B: the same bits with every launch blocking" bits 2 two
  on_gpus 2 ", 1B: no more memory than the dry run says" predict 1b-two
}

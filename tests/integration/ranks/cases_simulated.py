"""Runs the full program on the simulated device (tests/support/simulated_device/): streams, events and an allocator
like CUDA's, which report code that relied on an order it had not requested, and where the host waited."""
import dataclasses
import itertools
import json

from cases_validation import validation, write_held_out
from fixtures import write_job
from harness import case, expect, read_rows, start_plain

SAVES = ["--checkpoint.enable", "--checkpoint.interval", 2]
RECOMPUTED = {
    "recomputed": ["--activation_checkpoint.mode", "full"],
    "recomputed by layer": ["--activation_checkpoint.mode", "selective", "--activation_checkpoint.selective_ac_option", "2"],
    "recomputed by op": ["--activation_checkpoint.mode", "selective", "--activation_checkpoint.selective_ac_option", "op"],
}
# These compute what the plain run computes, to the bit; so do ", recomputed ..." and ", offloaded" what
# their prefix computes.
EQUAL = {
    "ZeRO-2": ["--parallelism.fsdp_reshard_after_forward", "never"],
    "grouped by size": ["--parallelism.fsdp_wrap", "size:4000"],
    "grouped by name, recomputed": ["--parallelism.fsdp_wrap", "layers.*.attention,layers.*", *RECOMPUTED["recomputed"]],
    "offloaded": ["--training.enable_cpu_offload"],
    "saved beside training": [*SAVES, "--checkpoint.async_mode", "async"],
    "saved from page-locked memory": [*SAVES, "--checkpoint.async_mode", "async_with_pinned_mem"],
    **RECOMPUTED,
}
ADAPTERS = ["--lora.rank", 4, "--lora.dropout", 0.1, "--lora.base_dtype", "bfloat16"]
DOCUMENTS = ["--model.flavor", "debugmodel_flex_attn"]
OTHERS = {
    "float32": ["--training.mixed_precision_param", "float32"],
    "float16": ["--training.mixed_precision_param", "float16"],
    "own kernels": ["--cuda.kernels", "own"],
    "own kernels, recomputed by op": ["--cuda.kernels", "own", *RECOMPUTED["recomputed by op"]],
    "adapters": ADAPTERS,
    "adapters, offloaded": [*ADAPTERS, *EQUAL["offloaded"]],
    "adapters, recomputed by op": [*ADAPTERS, *RECOMPUTED["recomputed by op"]],
    "documents apart": DOCUMENTS,
    "documents apart, recomputed by op": [*DOCUMENTS, *RECOMPUTED["recomputed by op"]],
}
CHECKSUMS = {"checksums of an offloaded state": [*EQUAL["offloaded"], "--debug.checksum_freq", 1]}  # read at each step
TENSOR_PARALLEL = {
    "tensor parallel": ["--parallelism.tensor_parallel_degree", 2],
    "tensor parallel, overlapped": ["--parallelism.tensor_parallel_degree", 2, "--parallelism.enable_async_tensor_parallel"],
    "tensor parallel, adapters": ["--parallelism.tensor_parallel_degree", 2, *ADAPTERS],
    "tensor parallel, recomputed by op": ["--parallelism.tensor_parallel_degree", 2, *RECOMPUTED["recomputed by op"]],
}
CONTEXT = ["--parallelism.context_parallel_degree", 2]
RING = ["--parallelism.context_parallel_rotate_method", "alltoall"]
CONTEXT_PARALLEL = {
    "context parallel": CONTEXT,
    "context parallel, in a ring": [*CONTEXT, *RING],
    "context parallel, documents apart, in a ring": [*CONTEXT, *RING, *DOCUMENTS],
    "context parallel, recomputed by op": [*CONTEXT, *RECOMPUTED["recomputed by op"]],
}
PIPELINE = ["--parallelism.pipeline_parallel_degree", 2, "--parallelism.data_parallel_shard_degree", -1]
INTERLEAVED = [*PIPELINE, "--model.args.n_layers", 6, "--parallelism.pipeline_parallel_schedule"]  # two blocks count for what is around them
PIPELINES = {
    "pipeline": PIPELINE,
    "pipeline, interleaved with split backwards": [*INTERLEAVED, "InterleavedZeroBubble"],
    "pipeline, in a V": [*INTERLEAVED, "ZBVZeroBubble"],
    "pipeline, adapters": [*PIPELINE, *ADAPTERS],
    "pipeline, documents apart": [*PIPELINE, *DOCUMENTS],
    "pipeline, tied weights in float16": [*PIPELINE, "--model.args.enable_weight_tying", "--training.mixed_precision_param", "float16"],
    "pipeline, accumulated": [*PIPELINE, "--training.global_batch_size", 4],
    "pipeline, recomputed by op": [*PIPELINE, *RECOMPUTED["recomputed by op"]],
}
OF_FOUR = {
    "replicas": ["--parallelism.data_parallel_replicate_degree", 2],
    "data parallel": ["--parallelism.data_parallel_replicate_degree", 4, "--parallelism.data_parallel_shard_degree", 1],
    "integer reshard": ["--parallelism.fsdp_reshard_after_forward", 2],
    "pipeline, sharded": PIPELINE,
    "pipeline, context parallel": [*PIPELINE, *CONTEXT],
}
STEPS, QUIET = 5, 3  # rows are written at 1, 2, 4 and 5, saves at 2 and 4


def modes(context, ranks, which):
    """Returns {name: words}; the plain one first."""
    found = {"plain": []}
    if which == "every":
        found |= {**EQUAL, **OTHERS, **CHECKSUMS, "accumulated": ["--training.global_batch_size", 4 * ranks]}
        found["validated"] = validation(write_held_out(context), steps=1)
        found |= TENSOR_PARALLEL | CONTEXT_PARALLEL if ranks > 1 else {}
    if which == "pipelines":
        return PIPELINES | {"pipeline, validated": [*PIPELINE, *validation(write_held_out(context), steps=1)]}
    return found | (OF_FOUR if ranks == 4 else {})


def run(context, ranks, name, words, device=None):
    """Returns the rows, and what the device found in each rank. `device`: variables that the simulated device reads."""
    label = name.replace(" ", "_").replace(",", "")
    job_file = write_job(context, label, steps=STEPS)
    simulated = dataclasses.replace(context, program=context.program.parent / "simulated-titan-train")
    variables = {rank: {"FINDINGS": str(context.folder / f"{label}.found"), **(device or {})} for rank in range(ranks)}
    words = ["--config", job_file, "--training.device", "cuda", "--metrics.log_freq", 2, *words]
    jobs = start_plain(simulated, ranks, words, variables=variables)
    for rank, job in enumerate(jobs):
        code = job.wait(60)
        expect(code == 0, f"{name}: exit code {code} of rank {rank}\n{job.tail()}")
    found = [json.loads((context.folder / f"{label}.found.{rank}.json").read_text()) for rank in range(ranks)]
    return read_rows(context.dump(label) / "metrics.jsonl", exact=True), found


def stood_still(found, name):
    """Returns where the host waited for the device although no number was needed: within any step except the first, or
    after a step without a row."""
    return [
        f"step {at['step']}, {at['during']}: {at['what']}\n{at['stack']}"
        for at in found["synchronizations"]
        if at["thread"] != "background"
        and (at["step"] == QUIET or (1 < at["step"] and at["during"] in ("data", "step", "optimizer")))
        and name not in CHECKSUMS
        and not (name.endswith("offloaded") and at["what"] == "an event")  # the gradients that come to the host
    ]


# Parameters of the small model: of all, and of its largest group, [norm, output].
NUM_PARAMETERS, LARGEST_GROUP = 360_768, 64 + 2048 * 64
ROUNDING = 512 * 64  # the allocator's 512 bytes for each tensor of the groups that are there together


def check_memory(found, ranks, name):
    """Checks that weights and gradients take at most what FSDP2 holds (docs/fully_shard.md): two gathered groups, in
    bfloat16, and the input of one reduce-scatter besides what has been reduced, in float32."""
    on_the_way = 4 * LARGEST_GROUP // ranks if name == "offloaded" else 0  # a shard that comes from the host
    for step in range(1, STEPS + 1):
        most = found["steps"][str(step)]["most_by_use"]
        bounds = {
            "gathered": 2 * 2 * LARGEST_GROUP + on_the_way + ROUNDING,
            "reduction": 4 * LARGEST_GROUP + 4 * (NUM_PARAMETERS + LARGEST_GROUP) // ranks + ROUNDING,
        }
        for use, bound in bounds.items():
            expect(most.get(use, 0) <= bound, f"{name}, step {step}: {use} takes {most[use]} bytes, FSDP2 at most {bound}")


NUM_LAYERS = 2
ATTENTION_OF_ROWS, ATTENTION_OF_DOCUMENTS = "aten::_scaled_dot_product_flash_attention_for_cpu", "aten::_flash_attention_forward"


def check_documents(of_ranks):
    """Checks that a layer has one attention for any number of documents, and that some batch has several."""
    found = [of_rank["steps"][str(step)]["kernels"] for of_rank in of_ranks for step in range(1, STEPS + 1)]
    for kernels in found:
        calls = [kernels.get(name, 0) for name in (ATTENTION_OF_ROWS, ATTENTION_OF_DOCUMENTS)]
        expect(sorted(calls) == [0, NUM_LAYERS], f"of rows and of documents there are {calls} attentions in a step")
    expect(any(ATTENTION_OF_DOCUMENTS in kernels for kernels in found), "no batch held several documents")


@case(240, tier="long", ranks=[4], which=["every"])
@case(240, ranks=[4], which=["of_four"])
@case(240, tier="long", ranks=[1], which=["every"])
@case(240, tier="wide", ranks=[2], which=["every"])
@case(240, ranks=[2], which=["pipelines"])
def simulated_device_finds_nothing(context, ranks, which):
    """In each training mode: no race, no memory reused too early, no wait of the host within a step."""
    losses = {}
    for name, words in modes(context, ranks, which).items():
        rows, found = run(context, ranks, name, words)
        losses[name] = [row["loss"] for row in rows if "loss" in row]
        if name == "documents apart":
            check_documents(found)
        like = "plain" if name in EQUAL else name.partition(", recomputed")[0].removesuffix(", offloaded")
        expect(losses[name] == losses[like], f"{name}: losses {losses[name]}, without it {losses[like]}")
        for rank, of_rank in enumerate(found):
            waits = {at["what"] for at in of_rank["synchronizations"]}
            expect("the device" in waits, f"{name}, rank {rank}: ended while the device may still have been at work")
            expect(not of_rank["races"], f"{name}, rank {rank}: " + "\n".join(of_rank["races"]))
            if ranks > 1 and name in ("plain", "offloaded", *RECOMPUTED):
                check_memory(of_rank, ranks, name)
            expect(not stood_still(of_rank, name), f"{name}, rank {rank}: " + "\n".join(stood_still(of_rank, name)))


# A model in which a block is the largest group, so that one more buffer of a block shows. Groups are in the order in which
# backward reduces them: [norm, output], the blocks, the embedding.
LAYERS, DIM, KEYS, HIDDEN = 4, 256, 128, 704
BLOCK = 2 * DIM * DIM + 2 * DIM * KEYS + 3 * DIM * HIDDEN + 2 * DIM
GROUPS = [2048 * DIM + DIM, *[BLOCK] * LAYERS, 2048 * DIM]
HALF, WHOLE = 2, 4  # bytes of bfloat16, in which parameters are gathered, and of float32, in which gradients are reduced


def shard(numel, shards):
    """Returns the bytes of a reduced shard, of which the allocator takes multiples of 512."""
    return -(-WHOLE * numel // shards // 512) * 512


def reduced_once(shards):
    """Returns the most that gradients take: those already reduced, and input and output of one reduce-scatter."""
    outputs = itertools.accumulate(shard(group, shards) for group in GROUPS)
    return max(output + WHOLE * group for output, group in zip(outputs, GROUPS))


def reduced_again(shards, in_flight=0):
    """Returns the most if a sum of each gradient exists already, to which an output is added before it is freed. With replicas
    `in_flight` earlier outputs are still in their all-reduce."""
    return sum(shard(group, shards) for group in GROUPS) + WHOLE * BLOCK + (1 + in_flight) * shard(BLOCK, shards)


@dataclasses.dataclass
class Schedule:
    words: list
    gathered: int  # bytes, at most
    reduction: int
    collectives: tuple  # gathers, reduce-scatters and all-reduces of a step


def schedules(ranks):
    """Returns {mode: Schedule}."""
    each, pair = len(GROUPS), 2 * HALF * BLOCK  # a gathered block and the buffer from which it was copied
    again = 2 * each - 1  # [norm, output] stays for backward
    accumulated = ["--training.global_batch_size", 4 * ranks]
    if ranks == 2:
        return {
            "ZeRO-3": Schedule([], pair, reduced_once(2), (again, each, 1)),
            "recomputed": Schedule(RECOMPUTED["recomputed"], pair, reduced_once(2), (again, each, 1)),
            "ZeRO-2": Schedule(EQUAL["ZeRO-2"], HALF * (sum(GROUPS) + BLOCK), reduced_once(2), (each, each, 1)),
            "accumulated": Schedule(accumulated, pair, reduced_again(2), (2 * again, 2 * each, 1)),
        }
    replicas = OF_FOUR["replicas"]
    return {
        "replicas": Schedule(replicas, pair, reduced_once(2), (again, each, each + 1)),
        "replicas, accumulated": Schedule([*replicas, *accumulated], pair, reduced_again(2, in_flight=2), (2 * again, 2 * each, 2 * each + 1)),
        # Parameters are only cast, and gradients are summed where they are.
        "data parallel": Schedule(OF_FOUR["data parallel"], HALF * BLOCK, WHOLE * sum(GROUPS), (0, 0, each)),
    }


def check_schedules(context, ranks):
    for name, schedule in schedules(ranks).items():
        words = ["--model.args.dim", DIM, "--model.args.n_layers", LAYERS, *schedule.words]
        _, found = run(context, ranks, name, words)
        for rank, step in itertools.product(range(ranks), range(1, STEPS + 1)):
            at = found[rank]["steps"][str(step)]
            counts = tuple(at["kernels"].get(kind, 0) for kind in ("all_gather", "reduce_scatter", "all_reduce"))
            taken = at["most_by_use"].get("gathered", 0), at["most_by_use"].get("reduction", 0), counts
            expected = schedule.gathered, schedule.reduction, schedule.collectives
            expect(taken == expected, f"{name}, rank {rank}, step {step}: bytes gathered, bytes of reductions, collectives: {taken}, expected {expected}")


@case(120, ranks=[2, 4])
def simulated_device_holds_what_fsdp2_holds(context, ranks):
    """To the byte, parameters and gradients take what FSDP2's schedule needs (docs/fully_shard.md), with as many collectives."""
    check_schedules(context, ranks)


SMALL_BLOCK = 1 << 20  # bytes up to which the allocator takes a block from its pool of small ones


@case(240, tier="wide", segments=["fixed"])
@case(240, segments=["expandable"])
def simulated_device_with_large_blocks(context, segments):
    """Blocks that the allocator splits and joins again are free of races, too, and none is freed while in use."""
    expect(HALF * BLOCK // 2 < SMALL_BLOCK < HALF * BLOCK, "the model's blocks do not come from both pools")
    wide = ["--model.args.dim", DIM, "--model.args.n_layers", LAYERS]
    chosen = {**EQUAL, **TENSOR_PARALLEL, "accumulated": ["--training.global_batch_size", 8]}
    names = ("ZeRO-2", "offloaded", "saved beside training", "recomputed by op", "tensor parallel, overlapped", "accumulated")
    for name, words in {"plain": [], **{name: chosen[name] for name in names}}.items():
        _, found = run(context, 2, name, [*wide, *words], {"SIMULATED_SEGMENTS": segments})
        for rank, of_rank in enumerate(found):
            expect(not of_rank["races"], f"{name}, rank {rank}: " + "\n".join(of_rank["races"]))


@case(60)
def simulated_device_waits_once_for_a_row(context):
    """NCCL finds torch deterministic and c10d impatient when the ranks connect, and the wait for a row is in the phase that counts as training."""
    # Without records c10d waits as long.
    _, found = run(context, 2, "deterministic", ["--debug.deterministic", "--comm.trace_buf_size", 0])
    for rank, of_rank in enumerate(found):
        expected = {"deterministic": True, "dump_patience": "500", "algorithms": "^NVLS,NVLSTree"}
        expect(of_rank["connected"] == expected, f"rank {rank}: connected with {of_rank['connected']}")
        waits = {at["step"] for at in of_rank["synchronizations"] if at["during"] == "device"}
        expect(waits == {1, 2, 4}, f"rank {rank}: waits for the device at steps {waits}")


@case(60, processors=1)
def simulated_device_works_in_the_steps(context):
    """The time in which the host waits for the device before a row belongs to the steps of that row."""
    work_s = 1
    rows, _ = run(context, 1, "working", [], {"SIMULATED_WORK_MS": str(1000 * work_s)})
    steps = {int(row["step"]): float(row["step_seconds"]) for row in rows if "step_seconds" in row}
    for step, num_steps in {1: 1, 2: 1, 4: 2}.items():
        expect(steps[step] * num_steps >= work_s, f"steps up to {step} took {steps[step]} s each, and the device worked {work_s} s in them")


def start_on(context, label, devices):
    """Starts two ranks; `devices`: rank -> what the device says of itself there. Returns their jobs and exit codes."""
    job_file = write_job(context, label, steps=2)
    simulated = dataclasses.replace(context, program=context.program.parent / "simulated-titan-train")
    jobs = start_plain(simulated, 2, ["--config", job_file, "--training.device", "cuda"], variables=devices)
    return jobs, [job.wait(60) for job in jobs]


@case(60)
def simulated_ranks_may_see_one_device_each(context):
    """Ranks that each see one device of their own train; if it is the same one, exit code 2 names the ranks."""
    own = {rank: {"SIMULATED_DEVICES": "1", "SIMULATED_UUID": str(rank)} for rank in range(2)}
    jobs, codes = start_on(context, "own", own)
    expect(codes == [0, 0], f"exit codes {codes}\n{jobs[0].tail()}")
    jobs, codes = start_on(context, "shared", {rank: {**own[rank], "SIMULATED_UUID": "7"} for rank in range(2)})
    expect(codes == [2, 2], f"exit codes {codes}\n{jobs[0].tail()}")
    expect("ranks 0 and 1 have the same CUDA device" in jobs[0].errors(), jobs[0].tail())


@case(60, processors=1)
def simulated_device_may_be_too_old(context):
    """A run is refused before it starts if this build has no kernels for its device."""
    simulated = dataclasses.replace(context, program=context.program.parent / "simulated-titan-train")
    words = ["--config", write_job(context, "old", steps=2), "--training.device", "cuda"]
    [job] = start_plain(simulated, 1, words, variables={0: {"SIMULATED_CAPABILITY": "70"}})
    code = job.wait(60)
    expect(code == 2 and "device 0: simulated device has compute capability 7.0" in job.errors(), f"exit code {code}\n{job.tail()}")


@case(60, processors=1)
def simulated_device_may_be_held_by_others(context):
    """A run is refused before it starts if other processes hold the memory that it needs, with how much they hold."""
    simulated = dataclasses.replace(context, program=context.program.parent / "simulated-titan-train")
    words = ["--config", write_job(context, "held", steps=2), "--training.device", "cuda"]
    [job] = start_plain(simulated, 1, words, variables={0: {"SIMULATED_FREE_MIB": "1"}})
    code = job.wait(60)
    expect(code == 2 and "of which 8.00 GiB are held already" in job.errors(), f"exit code {code}\n{job.tail()}")
    jobs, codes = start_on(context, "held_in_one", {1: {"SIMULATED_FREE_MIB": "1"}})
    expect(codes == [3, 1], f"exit codes {codes}\n{jobs[1].tail()}")
    expect("device 1: this run will not fit" in jobs[1].errors(), f"the second rank does not say what is held\n{jobs[1].tail()}")

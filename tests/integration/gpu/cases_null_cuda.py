"""Runs the real CUDA module, torch's CUDA allocator and ProcessGroupNCCL without a GPU (tests/support/null_cuda/): ranks
start and end as on GPUs, and faults of devices, memory and NCCL come when they are asked for. Values are not computed."""
import json
import re
import subprocess

import golden
from cases_simulated import CONTEXT_PARALLEL, EQUAL, OF_FOUR, OTHERS, PIPELINES, TENSOR_PARALLEL
from fixtures import DEBUG_MODEL, SMALL_MODEL, write_job
from harness import Job, case, expect, file_of_build, read_rows, skip, start


def null_cuda(context, **settings):
    """Returns variables for a job on null devices, by default H100s."""
    library = file_of_build(context, "libtitan_null_cuda.so")
    trace = context.folder / "trace"
    trace.mkdir(exist_ok=True)
    env = {"LD_PRELOAD": str(library), "NULL_CUDA_READ": "zeros", "NULL_CUDA_TRACE": str(trace)}
    return env | {f"NULL_CUDA_{key.upper()}": str(value) for key, value in settings.items()}


def run(context, ranks, words=(), exit_code=0, steps=3, label="run", template=SMALL_MODEL, **settings):
    """Runs the program on null devices. The loss is whatever memory holds, so that values that are not finite only warn."""
    if not (context.program.parent / "libtitan_cuda.so").exists():
        skip("nvcc")
    job_file = write_job(context, label, template, steps)
    words = ["--config", job_file, "--training.device", "cuda", "--training.on_nan", "warn", *words]
    job = start(context, ranks, words, name=label, env=null_cuda(context, **settings))
    code = job.wait(60)
    expect(code == exit_code, f"{label}: exit code {code}, expected {exit_code}\n{job.tail(40)}")
    return job


def traces(context):
    """Returns what each rank asked of its device, by rank."""
    found = map(json.loads, (path.read_text() for path in (context.folder / "trace").glob("*.json")))
    return {trace["rank"]: trace for trace in found if trace["num_launches"] > 0}


@case(60, processors=2, ranks=[2, 8], wide=["2"])
def null_cuda_ranks_train(context, ranks):
    """Ranks that each have a device of their own train and end, and call as many collectives as their peers."""
    run(context, ranks)
    expect(len(read_rows(context.dump("run") / "metrics.jsonl")) == 3, "the run did not train 3 steps")
    found = traces(context)
    expect(sorted(found) == list(range(ranks)), f"traces of ranks {sorted(found)}")
    for name in ("ncclAllGather", "ncclReduceScatter", "ncclAllReduce"):
        counts = {trace["calls"].get(name, 0) for trace in found.values()}
        expect(len(counts) == 1 and 0 not in counts, f"{name} was called {sorted(counts)} times")
    for rank, trace in found.items():
        peak = trace["peak_bytes"]
        expect(all(bytes == 0 for device, bytes in enumerate(peak) if device != rank), f"rank {rank} uses {peak}")


GROUPS = {"kinds": EQUAL | OTHERS, "tensor_parallel": TENSOR_PARALLEL, "context_parallel": CONTEXT_PARALLEL, "of_four": OF_FOUR, "pipelines": PIPELINES}


@case(240, ranks=[4], which=list(GROUPS), wide=["4_kinds", "4_tensor_parallel", "4_context_parallel", "4_pipelines"])
def null_cuda_modes_train(context, ranks, which):
    """Each mode of the simulated device trains over ProcessGroupNCCL: no rank calls another collective than its peers."""
    for mode, words in GROUPS[which].items():
        label = mode.replace(" ", "_").replace(",", "")
        job = run(context, ranks, words, label=label)
        expect("different collectives" not in job.errors(), f"{mode}\n{job.tail(40)}")
        expect(len(read_rows(context.dump(label) / "metrics.jsonl")) == 3, f"{mode}: it did not train 3 steps")


@case(60, processors=2)
def null_cuda_float8(context):
    """The matmuls of each recipe of float8 are taken by torch's own checks of their layouts, dtypes and scales, and go to
    cuBLASLt: three of each linear layer per step, but for gradients of weights that are not in float8."""
    words = ["--model.converters", "quantize.linear.float8", "--quantize.linear.float8.filter_fqns", "output"]
    for recipe, matmuls in (("tensorwise", 3), ("rowwise", 3), ("rowwise_with_gw_hp", 2)):
        # 120 tokens are not a multiple of 16: the matrices of gradients of weights are padded.
        run(context, 2, [*words, "--quantize.linear.float8.recipe_name", recipe, "--training.seq_len", 60], label=recipe)
        for path in (context.folder / "trace").iterdir():
            trace = json.loads(path.read_text())
            found, least = trace["launches"].get("cublasLtMatmul", 0), 3 * 14 * matmuls
            expect(trace["num_launches"] == 0 or found >= least, f"{recipe}: {found} matmuls, expected {least}")
            path.unlink()
    run(context, 2, [*words, *golden.FLOAT8_GATHERED], label="gathered")
    run(context, 1, words, label="too_old", exit_code=2, capability="8.0")


@case(90, processors=2, dtype=["bfloat16", "float16"])
def null_cuda_communicators(context, dtype):
    """Only groups whose tensors are on the device have communicators: with replicas those of the shards and of the replicas,
    and with float16 that of all ranks, for the scaler. The dry run counts as many."""
    words = ["--parallelism.data_parallel_replicate_degree", 2, "--training.mixed_precision_param", dtype, "--metrics.log_freq", 1]
    run(context, 4, [*words, "--debug.checksum_freq", 1])
    wanted = 3 if dtype == "float16" else 2
    for rank, trace in traces(context).items():
        made = trace["calls"].get("ncclCommInit", 0)
        expect(made == wanted, f"rank {rank} has made {made} communicators, expected {wanted}: {trace['calls']}")
    dry_run = [context.program, "--dry-run", "--json", "--world-size", 4, "--device", "H100", "--config", context.folder / "run.toml", *words]
    answer = subprocess.run([str(word) for word in dry_run], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    counted = json.loads(answer.stdout)["communicator_bytes"] >> 30
    expect(counted == wanted, f"the dry run counts {counted} communicators of 1 GiB, and there are {wanted}")


# The allocator hands out blocks of 512 bytes, and the dry run leaves out what a step holds besides tensors of the model.
PREDICTED_WITHIN = 0.005


@case(120, processors=2, recomputed=["none", "full"], wide=["full"])
def null_cuda_memory_as_predicted(context, recomputed):
    """An 8B model on eight devices of 80 GiB: torch's own allocator ends with the dry run's peak, and with its pools."""
    words = ["--model.flavor", "8B", "--training.seq_len", 8192, "--training.local_batch_size", 1]
    words += ["--activation_checkpoint.mode", recomputed]
    run(context, 8, words, steps=2, template=DEBUG_MODEL, moved=0)
    last = read_rows(context.dump("run") / "metrics.jsonl")[-1]
    dry_run = [context.program, "--dry-run", "--json", "--world-size", 8, "--device", "H100", "--config", context.folder / "run.toml", *words]
    answer = subprocess.run([str(word) for word in dry_run], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    predicted = json.loads(answer.stdout)
    expected = {"memory_active_bytes": predicted["peak_bytes"], "memory_peak_bytes": predicted["peak_bytes"] + predicted["pooled_bytes"]}
    for name, bytes in expected.items():
        expect(abs(last[name] - bytes) <= PREDICTED_WITHIN * bytes, f"{name} is {last[name]}, and the dry run says {bytes}")


@case(60, processors=2, mode=["sharded", "tensor_parallel"])
def null_cuda_steps_wait_for_nothing(context, mode):
    """Steps without a row make the host wait for its device nowhere, and do not allocate from it."""
    words = ["--parallelism.tensor_parallel_degree", 2] if mode == "tensor_parallel" else []
    found = {}
    for steps in (4, 8):
        run(context, 2, ["--metrics.log_freq", 100, *words], steps=steps, label=f"of_{steps}")
        for rank, trace in traces(context).items():
            found[steps, rank] = trace
        for path in (context.folder / "trace").iterdir():
            path.unlink()
    for rank in range(2):
        few, many = found[4, rank], found[8, rank]
        expect(many["num_launches"] > 1.2 * few["num_launches"], f"rank {rank}: the longer run launches no more")
        expect(many["waits"] == few["waits"], f"rank {rank} waits {many['waits']} in 8 steps, and {few['waits']} in 4")
        expect(many["peak_bytes"] == few["peak_bytes"], f"rank {rank}: the device gives more in later steps")


@case(60, processors=2)
def null_cuda_out_of_memory_names_the_step(context):
    """A device that is too small ends the run with the step and what to change, and the other rank repeats it."""
    job = run(context, 2, exit_code=1, memory=24 << 20)
    expect(re.search(r"rank \d: out of memory in step 1: .*training\.local_batch_size", job.errors()), job.tail(40))


@case(60, processors=2)
def null_cuda_doctor(context):
    """The doctor names the devices, and moves tensors between them with NCCL."""
    if not (context.program.parent / "libtitan_cuda.so").exists():
        skip("nvcc")
    job = Job([context.program, "doctor", "--nproc", 2, "--json"], context.folder / "logs", "doctor", null_cuda(context))
    job.wait(60)
    checks = {check["name"]: check for check in json.loads(job.out_path.read_text())["checks"]}
    expect(checks["devices"]["found"] == "8 x NVIDIA H100 80GB HBM3 of 80.00 GiB", checks["devices"])
    for name in ("all-gather", "reduce-scatter"):
        expect(re.fullmatch(r"\d.* GB/s to each rank .*", checks[name]["found"]), checks[name])
    expect(any(trace["calls"].get("ncclAllGather") for trace in traces(context).values()), "the doctor called no NCCL")


@case(60, processors=2)
def null_cuda_saves_and_resumes(context):
    """Saves beside training go through page-locked memory, and another number of devices resumes from them."""
    saves = ["--checkpoint.enable", "--checkpoint.interval", 2, "--checkpoint.async_mode", "async_with_pinned_mem"]
    saves += ["--checkpoint.last_save_model_only=false", "--training.global_batch_size", 8]
    saves += ["--training.data_order", "elastic"]
    job = run(context, 2, saves, steps=4)
    expect(len(re.findall(r"Saved checkpoint .* in the background; training stalled for", job.text())) == 2, job.tail(40))
    expect(all(trace["calls"].get("cudaHostAlloc") for trace in traces(context).values()), "no memory was page-locked")
    job = run(context, 4, [*saves, "--training.steps", 6], steps=4)
    expect(re.search(r"Loading the full state from \S+/step-4\b", job.text()), job.tail(40))
    expect([row["step"] for row in read_rows(context.dump("run") / "metrics.jsonl")] == [1, 2, 3, 4, 5, 6], "steps are missing")


@case(90, processors=2)
def null_cuda_restarted_after_a_kill(context):
    """A run whose rank is killed goes on from its last save, and ends."""
    words = ["--max-restarts", 2, "--checkpoint.enable", "--checkpoint.interval", 2]
    job = run(context, 2, words, steps=12, fault="kill launch=1500 rank=1")
    starts = len(re.findall(r"Loading the full state from", job.text()))
    expect(starts == 1, f"{starts} starts went on from a save\n{job.tail(40)}")
    expect(read_rows(context.dump("run") / "metrics.jsonl")[-1]["step"] == 12, job.tail(40))


@case(60, processors=2)
def null_cuda_old_driver(context):
    """CUDA's own runtime would find no device with an old driver; the program names both versions instead."""
    job = run(context, 2, exit_code=2, driver=12040)
    expect("it runs CUDA 12.4 and earlier" in job.errors(), job.tail(40))


@case(60, processors=2)
def null_cuda_collective_never_ends(context):
    """A collective that one rank never finishes ends the run after its limit, and all say which one it was."""
    limits = ["--comm.init_timeout_seconds", 20, "--comm.train_timeout_seconds", 3]
    job = run(context, 2, limits, exit_code=3, steps=50, fault="hang collective=100 rank=1")
    expect(re.search(r"collective operation timeout: WorkNCCL\(SeqNum=100, .* ran for \d+ milliseconds", job.errors()), job.tail(40))
    what = r"[a-z_]+ of \d+ -> \d+ elements of \w+ for [^\n]+?, no\. \d+ of 'world'"
    doing = rf"ranks? [01, ]+: at step \d+, in device for \S+ s; its device has not finished {what}, since"
    expect(job.errors().count("a collective did not end. What the ranks do:") == 1, f"no table, or two of them\n{job.tail(40)}")
    expect(re.search(doing, job.errors()), f"the table does not say where the devices are\n{job.tail(40)}")
    said = re.findall(rf"all its ranks have started {what}, and their devices do not finish it", job.errors())
    expect(len(said) == 2 and said[0] == said[1], f"the ranks name other collectives\n{job.tail(40)}")


@case(60, processors=2)
def null_cuda_peer_is_gone(context):
    """An error that NCCL reports of a peer ends the run with the exit code for another start, and NCCL's own words."""
    job = run(context, 2, exit_code=3, steps=50, fault="remote_error collective=100 rank=1")
    said = re.findall(r"(?:stops|stops: rank 1): NCCL: .*; NCCL's last error: null NCCL: a rule says that the peer is gone", job.errors())
    expect(len(said) == 2, f"not both ranks say why\n{job.tail(40)}")


@case(60, processors=2)
def null_cuda_killed_rank(context):
    """A rank that is killed between two kernels ends all ranks, which name it."""
    job = run(context, 2, exit_code=137, steps=50, fault="kill launch=1500 rank=1")
    expect("rank 1: ended without reporting an error" in job.errors(), job.tail(40))


@case(60, processors=2)
def null_cuda_illegal_access(context):
    """A kernel's illegal access is told as this rank's, with the exit code that asks for no other start."""
    job = run(context, 2, exit_code=1, steps=50, fault="illegal_access launch=1500 rank=1")
    expect("rank 1: the device failed: CUDA error: an illegal memory access was encountered" in job.errors(), job.tail(40))
    expect("rank 0: the device failed" not in job.errors(), job.tail(40))

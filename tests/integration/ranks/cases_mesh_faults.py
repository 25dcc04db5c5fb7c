"""Tests what a fault does to runs on meshes with a pipeline and with context parallelism: a rank that is lost, that is
asked to stop or that hangs, weights that are not finite, and steps that are skipped or trained again.
"""
import math
import re
import signal

from cases_failure import FOREVER, check_blames, check_reason
from cases_guard import bad_steps, marked_job, planted, spiky_job
from cases_hang import LIMIT
from cases_jobs import EQUAL_KEYS
from cases_validation import validation, write_held_out
from checkpoint_tools import FP32, SAVE
from fixtures import SMALL_MODEL, write_job
from harness import (
    Gate, at_row, case, check_close, check_identical, expect, faults, kill, read_rows, rows_by_step, run, start_plain,
)  # fmt: skip

MODEL = SMALL_MODEL.replace("n_layers = 2", "n_layers = 4").replace("local_batch_size = 2", "local_batch_size = 4")
PIPELINE = ["--parallelism.pipeline_parallel_degree", 2]
SCHEDULE = "--parallelism.pipeline_parallel_schedule"
# name -> ranks, words
MESHES = {
    "pipeline": (4, [*PIPELINE, SCHEDULE, "Interleaved1F1B"]),  # two replicas of the pipeline share its parameters
    "context": (2, ["--parallelism.context_parallel_degree", 2]),
}
STEPS = 6


def words_of(context, name, mesh, steps=STEPS, save_every=1):
    save = [*SAVE, "--checkpoint.interval", save_every, "--lr_scheduler.total_steps", FOREVER]
    return ["--config", write_job(context, name, MODEL, steps=steps), *MESHES[mesh][1], *save]


def check_others_blame(jobs, victim):
    for rank, job in enumerate(jobs):
        code = job.wait()
        if rank != victim:
            expect(code == 3, f"rank {rank} exited with {code}, expected 3\n{job.tail()}")
            check_blames(job.errors(), rank, victim)


def check_goes_on(context, name, mesh):
    """Checks that the next start of a run ends with the rows of one that was never disturbed."""
    ranks = MESHES[mesh][0]
    job = run(context, ranks, words_of(context, name, mesh), name="resumed")
    run(context, ranks, words_of(context, "straight", mesh, save_every=1000), name="straight")
    rows = [rows_by_step(context.dump(each) / "metrics.jsonl", exact=True) for each in (name, "straight")]
    check_identical(*rows, EQUAL_KEYS, f"{mesh}, resumed")
    return job


# In the step itself the others wait for the killed rank in messages of the pipeline or of the ring, or in collectives.
@case(90, tier="long", mesh=["pipeline"], victim=[0, 1, 2])
@case(90, tier="long", mesh=["context"], victim=[0])
@case(90, tier="wide", mesh=["context"], victim=[1])
@case(90, mesh=["pipeline"], victim=[3])
def killed_rank_of_a_mesh(context, mesh, victim):
    """The others end with code 3 and name the killed rank; the next start goes on as if nothing had happened."""
    gate = Gate(context, "third-row")
    words = words_of(context, "run", mesh, steps=FOREVER)
    jobs = start_plain(context, MESHES[mesh][0], words, variables={0: faults(context, gate.rule(at_row(3)))})
    gate.wait(jobs[0])
    kill(jobs[victim].process.pid, signal.SIGKILL)
    gate.open()
    check_others_blame(jobs, victim)
    check_goes_on(context, "run", mesh)


@case(90, tier="long", mesh=list(MESHES))
def killed_in_a_save_of_a_mesh(context, mesh):
    """The same for a rank of the last stage that dies while it writes its part of a checkpoint."""
    victim = MESHES[mesh][0] - 1
    env = faults(context, f"rank={victim} call=write path=*/checkpoint/step-3.tmp/* do=kill")
    jobs = start_plain(context, MESHES[mesh][0], words_of(context, "run", mesh, steps=FOREVER), variables={victim: env})
    check_others_blame(jobs, victim)
    check_goes_on(context, "run", mesh)


@case(90, mesh=list(MESHES), wide=["context"])
def sigterm_on_a_mesh(context, mesh):
    """SIGTERM lets all ranks save the same step and exit 75; the next start goes on from it as if nothing had happened."""
    gate = Gate(context, "stop")
    words = words_of(context, "run", mesh, steps=FOREVER, save_every=1000)
    jobs = start_plain(context, MESHES[mesh][0], words, variables={0: faults(context, gate.rule(at_row(3)))})
    gate.wait(jobs[0])
    for job in jobs:
        kill(job.process.pid, signal.SIGTERM)
    gate.wait(jobs[0], happened="signalled")
    gate.open()
    codes = [job.wait() for job in jobs]
    expect(codes == [75] * len(jobs), f"exit codes {codes}, expected 75\n{jobs[0].tail()}")
    saved = [path.name for path in (context.dump("run") / "checkpoint").iterdir()]
    expect(saved == ["step-4"], f"the checkpoints are {saved}")
    job = check_goes_on(context, "run", mesh)
    expect("/step-4\n" in job.text(), job.tail())


def hang_in_validation(context, words, read):
    """Lets rank 0 of two hang where it reads the held-out set for the `read`-th time after step 3. Checks that all end
    with code 3. Returns their jobs."""
    row, gate = Gate(context, "row"), Gate(context, "read")
    row.open()  # it only marks the moment: before it nothing is counted
    held_out = write_held_out(context)
    words = ["--config", write_job(context, "hung", MODEL, steps=FOREVER), *words, *validation(held_out, freq=1), *LIMIT]
    hang = gate.rule(f"rank=0 call=read path={held_out} n={read} after={row.path}.reached")
    jobs = start_plain(context, 2, words, variables={0: faults(context, row.rule(at_row(3)), hang)})
    gate.wait(jobs)
    for rank, job in enumerate(jobs):
        code = job.wait(60)
        expect(code == 3, f"rank {rank} exited with {code}, expected 3\n{job.tail()}")
    return jobs


def check_waits(jobs, operation, work=""):
    """Checks that both name rank 0, and the operation and phase in which rank 1 waits for it."""
    for rank, job in enumerate(jobs):
        why = rf"rank 0: has been in validation for [0-9.]+ s at step \d+, while rank 1 waits for it in {operation}"
        check_reason(job.errors(), rf"(?m)^titan-train: rank {rank}: stops: {why}")
    check_reason("".join(job.errors() for job in jobs), rf"(?m)^  rank 1: at step \d+{work}, in validation; waits in {operation}")


@case(90)
def hang_beside_a_pipeline(context):
    """While a rank hangs, the others say in which action of the pipeline they wait for it: its stage and microbatch."""
    jobs = hang_in_validation(context, PIPELINE, read=1)
    check_waits(jobs, "a receive of 4096 elements of bfloat16 from rank 0", r" \(forward of stage 1, microbatch 0\)")
    text = (context.dump("hung") / "comm_traces/rank_1").read_text()
    check_reason(text, r"(?m)^# step \d+, in validation for [0-9.]+ s, forward of stage 1, microbatch 0$")


@case(90)
def hang_beside_a_ring(context):
    """The same for ranks that share sequences: the other one waits for keys and values to come round the ring."""
    # Parameters stay gathered after the first batch of a pass, and the last document is read after it.
    words = [*MESHES["context"][1], "--parallelism.context_parallel_rotate_method", "alltoall"]
    jobs = hang_in_validation(context, [*words, "--parallelism.fsdp_reshard_after_forward", "never"], read=9)
    check_waits(jobs, "a receive of 4096 elements of bfloat16 from rank 0")
    text = (context.dump("hung") / "comm_traces/rank_1").read_text()
    check_reason(text, r"(?m)^# step \d+, in validation for [0-9.]+ s$")


# name -> ranks, words, the layer that is spoilt, the rank that is named, ranks whose loss is not finite. The four ranks are
# two pipelines, 0 and 2, 1 and 3, and the loss is the last stage's.
PLACES = {
    "context": (2, MESHES["context"][1], 3, 0, "0, 1"),
    # The last layer of the first of two stages: the other rank's first module gets NaN before.
    "pipeline": (4, [*PIPELINE, SCHEDULE, "1F1B"], 1, 0, "2, 3"),
    # In the second of four stages: ranks 0 and 1 have the first and the third.
    "interleaved": (4, [*PIPELINE, SCHEDULE, "Interleaved1F1B"], 2, 2, "2, 3"),
}


@case(120, where=list(PLACES))
def nan_is_located_on_a_mesh(context, where):
    """A weight of a layer holds NaN: its module, rank and first microbatch are named, and nothing is updated."""
    ranks, more, layer, rank, losses = PLACES[where]
    module = f"layers.{layer}.feed_forward.w2"

    def edit(weights):
        weights[f"{module}.weight"][3, 5] = math.nan

    words = ["--config", write_job(context, "run", MODEL, steps=3), *SAVE, *more]
    words += ["--training.global_batch_size", 16, "--checkpoint.initial_load_path", planted(context, 2, edit, MODEL)]
    text = run(context, ranks, words, exit_code=4).text()
    form = rf"step 1: the norm of the gradients is nan; first not finite: the output of {module} on rank {rank}, microbatch 0 "
    expect(re.search(form + r"\(\d+ NaN, its inputs are finite, its weight holds 1 NaN\)", text), text)
    expect(f"weights: {module}.weight (1 NaN);" in text, text)
    expect(f"the loss is not finite on ranks {losses};" in text, text)
    expect(not list((context.dump("run") / "checkpoint").glob("step-*")), "a checkpoint was saved")


# In rows that are not all the first of their batch: other marks would not tell one microbatch from another.
MARKED = (30, 47, 71)


@case(120)
def pipeline_leaves_out_what_others_do(context):
    """on_nan = "skip": the same steps are left out as without a pipeline, with one line that names the same microbatch,
    which is that of the row with the mark."""
    found = {}
    rows = ["--training.global_batch_size", 4, "--training.on_nan", "skip"]
    for name, ranks, more in (
        ("whole", 1, ["--training.local_batch_size", 1]),
        ("stages", 2, ["--training.local_batch_size", 4, *PIPELINE]),
    ):
        text = run(context, ranks, marked_job(context, name, ranks, 30, *rows, *more, marked=MARKED), name=name).text()
        form = r"step (\d+): the norm of the gradients is nan; first not finite: the output of (\S+) on rank (\d+), microbatch (\d+)"
        found[name] = re.findall(form, text)
        check_close(*([row for row in read_rows(context.dump(each) / "metrics.jsonl")] for each in (name, "whole")), ["tokens_seen"], 0, name)
    expect(found["whole"] and found["stages"] == found["whole"], f"{found}")
    expect({module for _, module, _, _ in found["whole"]} == {"tok_embeddings"}, f"{found}")
    expect(any(part != "0" for _, _, _, part in found["whole"]), f"choose other marks: {found}")
    rows = [{row["step"]: row for row in read_rows(context.dump(name) / "metrics.jsonl")} for name in ("whole", "stages")]
    expect(bad_steps(rows[0].values()) == bad_steps(rows[1].values()), f"{rows}")


@case(120, tier="long", mesh=["context"])
@case(120, mesh=["pipeline"])
def nan_rolls_back_on_a_mesh(context, mesh):
    """on_nan = "rollback": all ranks go back to the same checkpoint, and each step has one row."""
    ranks, more = MESHES[mesh]
    more = [{"Interleaved1F1B": "1F1B"}.get(word, word) for word in more]  # the weights are of two layers
    flags = ["--training.on_nan", "rollback", "--checkpoint.interval", 3, *more]
    text = run(context, ranks, marked_job(context, "run", ranks, 24, *flags)).text()
    went = [(int(a), int(b)) for a, b in re.findall(r"back at step (\d+) of (\d+), as training.on_nan", text)]
    expect(len(went) >= 1 and all(good == (bad - 1) // 3 * 3 for good, bad in went), f"{went}\n{text[-3000:]}")
    rows = read_rows(context.dump("run") / "metrics.jsonl")
    expect([row["step"] for row in rows] == list(range(1, 25)) and bad_steps(rows) == [], f"{rows}")


@case(120)
def spike_in_a_pipeline(context):
    """on_spike = "skip": the steps that are left out without a pipeline are left out with one."""
    found = {}
    for name, ranks, more in (("whole", 1, []), ("stages", 2, [*PIPELINE, "--parallelism.pipeline_parallel_microbatch_size", 1])):
        words = spiky_job(context, name, 100, "--training.on_spike", "skip", *FP32, *more)
        found[name] = re.findall(r"step (\d+): a spike: the", run(context, ranks, words, name=name).text())
    expect(found["whole"] and found["stages"] == found["whole"], f"{found}")

"""A job's life: initialization, checkpoints, resuming, stopping on a signal."""
import signal

from fixtures import write_job
from harness import (
    case, check_identical, expect, import_reference, kill, read_rows, rows_by_step, run, start, wait_until,
)  # fmt: skip

EQUAL_KEYS = ("loss", "max_loss", "grad_norm", "lr", "tokens_seen")
FULL_CHECKPOINTS = ["--checkpoint.enable", "--checkpoint.no-last_save_model_only"]


@case(60, ranks=[1, 2, 4])
def resume(context, ranks):
    """40 steps in one go, and 20 steps, a new process, 20 more, give the same numbers to the last digit."""
    straight = write_job(context, "straight", steps=40)
    broken = write_job(context, "broken", steps=40)
    run(context, ranks, ["--config", straight], name="straight")
    save = FULL_CHECKPOINTS + ["--checkpoint.interval", "20"]
    # The schedule's length follows training.steps unless it is given.
    first_half = ["--training.steps", "20", "--lr_scheduler.total_steps", "40"]
    run(context, ranks, ["--config", broken, *save, *first_half], name="first_half")
    first = rows_by_step(context.dump("broken") / "metrics.jsonl", exact=True)
    expect(max(first) == 20, f"the first half ended at step {max(first)}")
    run(context, ranks, ["--config", broken, *save, "--lr_scheduler.total_steps", "40"], name="second_half")
    resumed = rows_by_step(context.dump("broken") / "metrics.jsonl", exact=True)
    trained = [int(row["step"]) for row in read_rows(context.dump("broken") / "metrics.jsonl", exact=True)]
    # Appended to the first half's rows or not; a second half that began at step 1 has trained 20 steps too many.
    expect(trained[-20:] == list(range(21, 41)) and len(trained) <= 40, f"the rows after resuming are {trained}")
    check_identical(
        {**first, **resumed}, rows_by_step(context.dump("straight") / "metrics.jsonl", exact=True), EQUAL_KEYS, "resume"
    )


@case(60, ranks=[1, 2])
def resume_after_sigterm(context, ranks):
    """SIGTERM saves at the next step boundary and exits 75; the resumed job ends as if nothing had happened."""
    steps = 400
    save = FULL_CHECKPOINTS + ["--checkpoint.interval", "100000"]
    run(context, ranks, ["--config", write_job(context, "straight", steps=steps)], name="straight")
    words = ["--config", write_job(context, "stopped", steps=steps), *save]
    metrics = context.dump("stopped") / "metrics.jsonl"
    # mpirun passes a rank's own exit code on, which torchrun does not.
    launcher = "none" if ranks == 1 else "mpirun"
    job = start(context, ranks, words, launcher, "stopped")
    wait_until(lambda: metrics.exists() and len(read_rows(metrics)) >= 5, 30, "no fifth step")
    pids = wait_until(lambda: job.ranks(context.program), 5, "no rank found")
    for pid in pids.values():
        kill(pid, signal.SIGTERM)
    code = job.wait(20)
    expect(code == 75, f"exit code {code} after SIGTERM, expected 75\n{job.tail()}")
    stopped = rows_by_step(metrics, exact=True)
    last = max(stopped)
    expect(last < steps, "the run ended before the signal arrived")
    saved = sorted(p.name for p in (context.dump("stopped") / "checkpoint").iterdir())
    expect(saved == [f"step-{last}"], f"after step {last} the checkpoints are {saved}")
    run(context, ranks, words, launcher, "resumed")
    both = {**stopped, **rows_by_step(metrics, exact=True)}
    check_identical(both, rows_by_step(context.dump("straight") / "metrics.jsonl", exact=True), EQUAL_KEYS, "resume")


@case(60, ranks=[1, 2, 4])
def init(context, ranks):
    """The seed checkpoint has, on any number of ranks, the bits of a one-rank TorchTitan initialization."""
    config = write_job(context, "seed")
    run(context, ranks, ["--config", config, "--checkpoint.enable", "--checkpoint.create_seed_checkpoint"])
    init_weights, job_file = import_reference()
    expected = init_weights.initial_weights(job_file.load_job(config))
    found = init_weights.load_weights(expected, context.dump("seed") / "checkpoint/step-0")
    lines = init_weights.differences(expected, found)
    expect(not lines, "weights differ from the reference:\n" + "\n".join(lines))

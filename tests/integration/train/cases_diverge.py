"""Tests training that diverges: it stops before a useless state is saved, or continues if told to."""
import json
import math
import re

from cases_sweep import run_sweep, trials_of, write_sweep
from fixtures import write_job
from harness import case, expect, read_rows, run

# One step of this size destroys the weights.
FAR_TOO_LARGE = ["--optimizer.lr", "1e30", "--lr_scheduler.warmup_steps", 0]
SAVE = ["--checkpoint.enable", "--checkpoint.interval", 1, "--checkpoint.no-last_save_model_only"]


def is_finite(row):
    return all(math.isfinite(float(row[name])) for name in ("loss", "grad_norm"))


@case(60)
def nan_stops_the_run(context):
    """Ranks stop at the step with non-finite gradients; its row is written, not its state; code and message say so."""
    config, folder = write_job(context, "run", steps=9), context.dump("run")
    job = run(context, 2, ["--config", config, *FAR_TOO_LARGE, *SAVE, "--metrics.log_freq", 100], exit_code=4)
    rows = read_rows(folder / "metrics.jsonl")
    expect([is_finite(row) for row in rows] == [True, False], f"rows: {rows}")
    last = rows[-1]["step"]
    expect(re.search(rf"training has diverged: at step {last} .*optimizer.lr", job.text()), job.tail())
    steps = sorted(int(path.name.removeprefix("step-")) for path in (folder / "checkpoint").iterdir())
    expect(steps == list(range(1, last)), f"diverged at step {last}, and saved were {steps}")


@case(60, processors=1)
def nan_only_warns(context):
    """on_nan = "warn": one warning, all steps, all checkpoints."""
    config, folder = write_job(context, "run", steps=6), context.dump("run")
    job = run(context, 1, ["--config", config, *FAR_TOO_LARGE, *SAVE, "--training.on_nan", "warn"])
    rows = read_rows(folder / "metrics.jsonl")
    expect(len(rows) == 6 and not is_finite(rows[-1]), f"rows: {rows}")
    expect(len(re.findall(r"the norm of the gradients is", job.text())) == 1, job.tail())
    expect((folder / "checkpoint/step-6").exists(), "the last step was not saved")


@case(90)
def diverged_trial_is_a_result(context):
    """A trial that diverges is done, with the worst objective; the sweep has not failed."""
    words = '[sweep.grid]\n"optimizer.lr" = [1e30, 1e-3]\n"lr_scheduler.warmup_steps" = [0]\n'
    sweep, folder = write_sweep(context, "rates", 'objective = "loss"\nreduction = "min"\n' + words, steps=6)
    job = run_sweep(context, [sweep], "sweep")
    trials = trials_of(folder)
    expect([trial["state"] for trial in trials] == ["done", "done"], json.dumps(trials, indent=1))
    expect("diverged at step" in job.text(), job.tail())
    ranking = job.text()[job.text().rindex("nan") - 400 :]
    expect(ranking.index("0.001") < ranking.index("nan"), f"the diverged trial is not the last:\n{ranking}")

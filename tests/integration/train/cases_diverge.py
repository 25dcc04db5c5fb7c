"""Tests training that diverges: it stops before a useless state is saved, or continues if told to."""
import json
import math
import re
import shutil
import struct

from cases_sweep import run_sweep, trials_of, write_sweep
from fixtures import write_job
from harness import case, expect, faults, read_rows, run

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


def place_in(path, name):
    """Returns the first and the last byte of a tensor in a safetensors file."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    begin, end = json.loads(data[8 : 8 + size])[name]["data_offsets"]
    return 8 + size + begin, 8 + size + end


def check_blames_memory(job, step, where):
    """Checks that weights which were damaged are not put down to the learning rate."""
    reason = rf"training stops: at step {step} the norm of the gradients is \S+, and not because of the learning rate: weights of rank 0 \(.*\) are NaN.*{where}"
    expect(re.search(reason, job.text()) and "smaller optimizer.lr" not in job.text(), job.tail())


@case(60, processors=1)
def damaged_weights(context):
    """Weights that are NaN in the file that a run loads, or become so in its memory between steps, are named as that."""
    words = ["--lr_scheduler.total_steps", 6, "--checkpoint.enable", "--checkpoint.last_save_in_hf", "--checkpoint.export_dtype", "float32"]
    run(context, 1, ["--config", write_job(context, "good", steps=2), *words], name="good")
    export = context.dump("good") / "checkpoint/step-2"
    (file,) = export.glob("*.safetensors")
    begin, end = place_in(file, "model.norm.weight")
    tensor = context.folder / "tensor"
    tensor.write_bytes(file.read_bytes()[begin:end])
    # The same steps, after which the weights are those of the file.
    env = faults(context, f"call=write path=*metrics.jsonl n=2 do=spoil:{tensor}") | {"TITAN_HOST_ARENA": "0"}
    job = run(context, 1, ["--config", write_job(context, "memory", steps=6), *words], name="memory", exit_code=4, env=env)
    check_blames_memory(job, 3, "Memory was damaged")
    shutil.copytree(export, context.folder / "bad")
    (context.folder / "bad/titan.checksums.json").unlink()
    bad = context.folder / "bad" / file.name
    bad.write_bytes(file.read_bytes()[:begin] + struct.pack("<f", math.nan) + file.read_bytes()[begin + 4 :])
    load = ["--checkpoint.initial_load_path", bad.parent, "--checkpoint.initial_load_in_hf"]
    job = run(context, 1, ["--config", write_job(context, "loaded", steps=6), *words, *load], name="loaded", exit_code=4)
    check_blames_memory(job, 1, "The checkpoint or the weights that this start has loaded hold them")

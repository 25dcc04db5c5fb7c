"""Tests training under every launcher, and what a run leaves behind."""
import re
import statistics
import struct

from fixtures import DEBUG_MODEL, write_job
from harness import Gate, case, check_identical, cpu_seconds, expect, faults, read_rows, rows_by_step, run, start, wait_until

# The contract of metrics.jsonl.
ROW_KEYS = {
    "step", "loss", "max_loss", "grad_norm", "lr", "tokens_seen", "tokens_per_second", "tflops", "mfu",
    "memory_peak_bytes", "step_seconds", "data_seconds", "unix_time",
}  # fmt: skip
FIRST_ROW_KEY = "time_to_first_step_seconds"

# TorchTitan's line, so that tools that read its logs read ours.
CONSOLE_LINE = re.compile(
    r"step: +(?P<step>\d+)  loss: +(?P<loss>\d+\.\d{5})  grad_norm: +(?P<grad_norm>\d+\.\d{4})  "
    r"memory: +\d+\.\d{2}GiB\(\d+\.\d{2}%\)  tps: [\d,]+  tflops: [\d,]+\.\d{2}  mfu: (?:\d+\.\d{2}%|N/A)"
)


def check_rows(rows, steps, ranks):
    expect([row["step"] for row in rows] == list(range(1, steps + 1)), f"steps are {[row['step'] for row in rows]}")
    for row in rows:
        missing = ROW_KEYS - set(row)
        expect(not missing, f"step {row['step']} lacks {sorted(missing)}")
        seen, tokens = row["tokens_seen"], row["step"] * ranks * 2 * 64
        expect(seen == tokens, f"step {row['step']}: tokens_seen is {seen}, expected {tokens}")
        expect(row["max_loss"] >= row["loss"] * (1 - 1e-6), f"step {row['step']}: max_loss is below loss")
    expect(rows[0].get(FIRST_ROW_KEY, 0) > 0, f"the first row lacks {FIRST_ROW_KEY}")
    times = [row["unix_time"] for row in rows]
    expect(times == sorted(times), "unix_time does not grow")
    # The PyTorch reference starts at 8.0 to 8.1 and falls by 4.0 to 4.6 here, at 1, 2 and 4 ranks.
    fall = rows[0]["loss"] - statistics.mean(row["loss"] for row in rows[-5:])
    expect(fall > 3.0, f"the loss fell by {fall:.3f} in {steps} steps, expected more than 3")


def check_console(text, rows):
    found = {int(m["step"]): m for m in CONSOLE_LINE.finditer(text)}
    for row in rows:
        match = found.get(row["step"])
        expect(match is not None, f"no console line of TorchTitan's form for step {row['step']}")
        for key, digits in (("loss", 5), ("grad_norm", 4)):
            wanted = f"{row[key]:.{digits}f}"
            expect(match[key] == wanted, f"step {row['step']}: console {key} {match[key]}, metrics {wanted}")


def train(context, ranks, launcher):
    steps = 40
    job = run(context, ranks, ["--config", write_job(context, "train", steps=steps)], launcher)
    rows = read_rows(context.dump("train") / "metrics.jsonl")
    check_rows(rows, steps, ranks)
    check_console(job.text(), rows)
    expect((context.dump("train") / "config.toml").exists(), "the resolved config.toml was not written")


@case(60, ranks=[1, 2, 4], wide=["1", "4"])
def train_torchrun(context, ranks):
    """N ranks under torchrun train: the loss falls, and rows and console lines keep their contracts."""
    train(context, ranks, "torchrun")


@case(120, ranks=[1, 2])
def async_checkpoints(context, ranks):
    """Checkpoints written in the background hold what synchronous ones hold, and training is the same."""
    words = ["--checkpoint.enable", "--checkpoint.interval", "2", "--checkpoint.last_save_model_only=false"]
    for mode in ("disabled", "async"):
        config = write_job(context, mode, steps=6)
        job = run(context, ranks, ["--config", config, *words, "--checkpoint.async_mode", mode], name=mode)
    expect(len(re.findall(r"in the background; training stalled for [\d.]+ s", job.text())) == 3, "no line says the stall")
    tables = [rows_by_step(context.dump(mode) / "metrics.jsonl", exact=True) for mode in ("async", "disabled")]
    check_identical(*tables, ["loss", "grad_norm"], "asynchronous checkpoints")
    for step in (2, 4, 6):
        for rank in range(ranks):
            files = [context.dump(mode) / f"checkpoint/step-{step}/__{rank}_0.distcp" for mode in ("disabled", "async")]
            expect(files[0].read_bytes() == files[1].read_bytes(), f"{files[1]} differs from {files[0]}")


@case(60, ranks=[1, 2])
def train_mpirun(context, ranks):
    """mpirun alone (no address in the environment) starts ranks that find each other and train."""
    train(context, ranks, "mpirun")


@case(60, processors=1)
def train_without_launcher(context):
    """The program alone is one rank."""
    train(context, 1, "none")


@case(60, quick=True)
def train_nproc(context):
    """--nproc starts the ranks itself, as does --nproc=N, but not under another launcher."""
    config = write_job(context, "train", steps=40)
    run(context, 1, ["--nproc", "2", "--config", config], "none")
    check_rows(read_rows(context.dump("train") / "metrics.jsonl"), 40, 2)
    again = ["--overwrite", "--training.steps", "1", "--lr_scheduler.warmup_steps", "1"]
    run(context, 1, ["--nproc=2", "--config", config, *again], "none")
    refused = run(context, 2, ["--nproc", "2", "--config", config], "mpirun", exit_code=2)
    expect("--nproc" in refused.text(), "mpirun and --nproc together are not refused by name")


FLOAT16 = ["--training.mixed_precision_param", "float16", "--training.mixed_precision_reduce", "float16"]


@case(90, ranks=[1, 2])
def float16(context, ranks):
    """float16 with a scaled loss learns as much as other dtypes do."""
    run(context, ranks, ["--config", write_job(context, "train", steps=40), *FLOAT16])
    rows = read_rows(context.dump("train") / "metrics.jsonl")
    check_rows(rows, 40, ranks)
    scales = [row["grad_scale"] for row in rows]
    expect(scales[0] == 65536, f"the first scale is {scales[0]}")
    factors = {after / before for before, after in zip(scales, scales[1:], strict=False)}
    expect(factors <= {1.0, 0.5}, f"within 2,000 steps the scale can only stay or halve; it went {scales}")


# Two tokens per rank, so that each has half of the scaled loss: the gradient of a token's output weights is 65536 / 2
# times its features. Of the 256 features of both, which are normally distributed, some are near 3, where 2 is already
# beyond float16's 65504. No feature is above the root of 128, so that a scale of 4096 does not overflow.
OVERFLOWING = ["--training.local_batch_size", "1", "--training.seq_len", "2", "--model.args.dim", "128"]


def check_scales(rows):
    """Checks that the first step is skipped, that not all are, and that the scale has halved after each skipped one."""
    left_out = [step for step, row in rows.items() if row["grad_norm"] in ("Infinity", "NaN")]
    expect(1 in left_out and len(left_out) <= 4, f"steps with an infinite gradient are {left_out}")
    for step, row in rows.items():
        scale = 65536 / 2 ** sum(other < step for other in left_out)
        expect(float(row["grad_scale"]) == scale, f"step {step}: the scale is {row['grad_scale']}, expected {scale}")


@case(120, ranks=[1, 2])
def float16_overflow(context, ranks):
    """If gradients overflow, steps are skipped, the scale falls, and a resume restores it."""
    words = [*FLOAT16, *OVERFLOWING, "--lr_scheduler.total_steps", "8"]
    save = ["--checkpoint.enable", "--checkpoint.no-last_save_model_only", "--checkpoint.interval", "4"]
    run(context, ranks, ["--config", write_job(context, "straight", steps=8), *words], name="straight")
    straight = rows_by_step(context.dump("straight") / "metrics.jsonl", exact=True)
    check_scales(straight)
    broken = write_job(context, "broken", steps=8)
    metrics = context.dump("broken") / "metrics.jsonl"
    run(context, ranks, ["--config", broken, *words, *save, "--training.steps", "4"], name="first_half")
    first = rows_by_step(metrics, exact=True)
    run(context, ranks, ["--config", broken, *words, *save], name="second_half")
    keys = ("loss", "max_loss", "grad_norm", "lr", "tokens_seen", "grad_scale")
    check_identical({**first, **rows_by_step(metrics, exact=True)}, straight, keys, "resume")


@case(90, processors=1)
def float16_hopeless(context):
    """A scale that falls below 1 and stays there is warned of, once.

    The first update, of the learning rate itself for each weight, is beyond float16's largest number: no later step has
    a finite gradient, on any machine, and the scale halves in each.
    """
    config = write_job(context, "train", steps=24)
    job = run(context, 1, ["--config", config, *FLOAT16, "--optimizer.lr", "1e6"])
    scales = [row["grad_scale"] for row in read_rows(context.dump("train") / "metrics.jsonl")]
    expect(scales == [65536, *(65536 / 2**step for step in range(23))], f"the scales are {scales}")
    warned = job.text().count("was below 1 in 3 logged steps in a row")
    expect(warned == 1, f"the warning came {warned} times, expected once")


@case(90, processors=1)
def float16_from_float32(context):
    """A run in float16 resumes from a checkpoint without a scale, and says that it starts with the first one."""
    config = write_job(context, "train", steps=6)
    save = ["--checkpoint.enable", "--checkpoint.no-last_save_model_only", "--checkpoint.interval", "3"]
    total = ["--lr_scheduler.total_steps", "6"]
    run(context, 1, ["--config", config, *save, *total, "--training.steps", "3"], name="first")
    second = run(context, 1, ["--config", config, *FLOAT16, *save, *total], name="second")
    expect("no gradient scale" in second.text(), "the second run does not say that the checkpoint has no scale")
    rows = rows_by_step(context.dump("train") / "metrics.jsonl")
    expect("grad_scale" not in rows[3], "a row without float16 has a grad_scale")
    expect(rows[4]["grad_scale"] == 65536, f"the first scale is {rows[4]['grad_scale']}")
    # And back: the saved scale is ignored without float16.
    run(context, 1, ["--config", config, *save, "--training.steps", "8", "--lr_scheduler.total_steps", "8"], name="third")


@case(60, quick=True, processors=1)
def metrics_are_exact(context):
    """Numbers of metrics.jsonl have exactly the digits that their bits need."""
    run(context, 1, ["--config", write_job(context, "train", steps=3), "--optimizer.lr", "1e-3"])
    rows = read_rows(context.dump("train") / "metrics.jsonl", exact=True)
    for index, row in enumerate(rows):
        for key in ("loss", "max_loss", "grad_norm", "lr"):
            value = float(row[key])
            # The shortest text that is read back as the same double; only the exponent is spelled in more than one way.
            expect(digits_of(row[key]) == digits_of(repr(value)), f"step {row['step']}: {key} is {row[key]}, shortest {value!r}")
            # Computed in float32: a text that was truncated anywhere is not one of float32's numbers.
            expect(key == "lr" or value == struct.unpack("f", struct.pack("f", value))[0], f"step {row['step']}: {key} {row[key]} is not a float32")
        # Warm-up over all three steps: thirds of 1e-3, which need a double's 16 digits.
        lr, wanted = row["lr"], 1e-3 * (index + 1) / 3
        expect(abs(float(lr) / wanted - 1) < 1e-15, f"step {row['step']}: lr is {lr}, expected {wanted!r}")
    expect(len(rows) == 3, f"{len(rows)} rows")


def digits_of(number):
    return number.lower().partition("e")[0].replace(".", "").strip("0")


@case(60, ranks=[1, 2])
def startup(context, ranks):
    """A rank of the debug model takes at most 5 s of processor time to start, make its first step and end.

    Processor time, because wall time depends on the machine; three times what was seen, because shared cores take
    longer for the same work. benchmarks/startup.py measures wall time.
    """
    with cpu_seconds() as spent:
        run(context, ranks, ["--config", write_job(context, "start", DEBUG_MODEL, steps=1)])
    print(f"       {spent.seconds / ranks:.2f} s a rank", flush=True)
    expect(spent.seconds <= 5 * ranks, f"{ranks} ranks took {spent.seconds:.2f} s, expected at most {5 * ranks}")


@case(60, processors=1)
def float16_has_no_mfu(context):
    """The peak of float16 matmuls on CPU is unknown, and not measured for seconds: only mfu is null."""
    words = ["--config", write_job(context, "half", steps=3), "--training.mixed_precision_param", "float16"]
    text = run(context, 1, words).text()
    rows = read_rows(context.dump("half") / "metrics.jsonl")
    expect([row["mfu"] for row in rows] == [None] * 3 and all(row["tflops"] > 0 for row in rows), f"{rows}")
    expect(text.count("mfu: N/A") == 3, text)


@case(120, processors=1)
def slow_first_step_is_said(context):
    """A first step longer than ten seconds is reported while it lasts, with what it does: here it waits for another
    rank."""
    gate = Gate(context, "late")
    late = faults(context, gate.rule("rank=1 call=open path=*/rank_1.log"))
    job = start(context, 2, ["--config", write_job(context, "late", steps=1)], name="late", env=late)
    gate.wait(job)
    wait_until(lambda: "step 1 has taken" in job.text(), 60, "the first step says nothing of itself")
    expect(re.search(r"step 1 has taken \d+ s so far: it waits for other ranks, in a collective\. Shorter steps:", job.text()), job.tail())
    gate.open()
    expect(job.wait(60) == 0, job.tail())

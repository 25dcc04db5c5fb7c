"""What happens when something is wrong: a rank dies, a file is missing, a setting does not exist."""
import re
import signal
import time

from fixtures import write_job
from harness import (
    ROOT, case, expect, is_alive, kill, read_rows, run, start, start_plain, wait_until,
)  # fmt: skip

# Text that only an exception nobody caught, or a crash, prints.
CRASH = re.compile(r"terminate called|core dumped|AddressSanitizer|Segmentation fault")
FOREVER = 1_000_000


def wait_for_steps(context, name, count=3):
    metrics = context.dump(name) / "metrics.jsonl"
    wait_until(lambda: metrics.exists() and len(read_rows(metrics)) >= count, 30, f"no step {count}")


def check_gone(pids, since):
    """All ranks have ended within 10 s of `since`."""
    for rank, pid in pids.items():
        remaining_s = max(0.1, since + 10 - time.monotonic())
        wait_until(lambda pid=pid: not is_alive(pid), remaining_s, f"rank {rank} outlived the killed one")


def check_reason(text, pattern):
    """One line says why; nothing crashed on the way."""
    expect(not CRASH.search(text), f"a rank crashed:\n{text[-2000:]}")
    expect(re.search(pattern, text), f"no line says '{pattern}':\n{text[-2000:]}")


@case(60, launcher=["torchrun", "mpirun"])
def killed_rank(context, launcher):
    """SIGKILL on one of two ranks under a launcher ends the whole job within 10 s, with a code that is not zero."""
    job = start(context, 2, ["--config", write_job(context, "killed", steps=FOREVER)], launcher)
    wait_for_steps(context, "killed")
    pids = job.ranks(context.program)
    expect(sorted(pids) == [0, 1], f"found ranks {sorted(pids)}")
    kill(pids[1], signal.SIGKILL)
    since = time.monotonic()
    code = job.wait(10)
    check_gone(pids, since)
    expect(code != 0, "the launcher reports success after a rank was killed")
    expect(not CRASH.search(job.text()), f"a rank crashed:\n{job.tail()}")


@case(60, victim=[0, 1, 2])
def killed_rank_plain(context, victim):
    """Without a launcher the other ranks notice by themselves: exit code 3 within 10 s, one line that names the rank.

    Rank 0 is a case of its own: it holds the store over which ranks meet.
    """
    jobs = start_plain(context, 3, ["--config", write_job(context, "killed", steps=FOREVER)])
    wait_for_steps(context, "killed")
    kill(jobs[victim].process.pid, signal.SIGKILL)
    since = time.monotonic()
    for rank, job in enumerate(jobs):
        code = job.wait(max(0.1, since + 10 - time.monotonic()))
        if rank != victim:
            expect(code == 3, f"rank {rank} exited with {code}, expected 3\n{job.tail()}")
            check_reason(job.text(), rf"(?i)rank {victim}\b")


@case(90)
def stopped_rank(context):
    """In a resumed run, too, a rank that hangs ends the others within comm.train_timeout_seconds, by name."""
    words = ["--checkpoint.enable", "--checkpoint.interval", "3", "--comm.init_timeout_seconds", "300"]
    run(context, 2, ["--config", write_job(context, "hung", steps=3), *words, "--checkpoint.last_save_model_only=false"])
    config = write_job(context, "hung", steps=FOREVER)
    jobs = start_plain(context, 2, ["--config", config, *words, "--comm.train_timeout_seconds", "4"])
    wait_for_steps(context, "hung", 6)
    kill(jobs[1].process.pid, signal.SIGSTOP)
    try:
        code = jobs[0].wait(20)
        expect(code == 3, f"rank 0 exited with {code}, expected 3\n{jobs[0].tail()}")
        check_reason(jobs[0].text(), r"(?i)rank 1\b")
    finally:
        kill(jobs[1].process.pid, signal.SIGKILL)


@case(60)
def failing_rank(context):
    """A rank that cannot read its data exits 2 with the path; the others exit 3 instead of waiting for it."""
    for rank in (0, 1):
        (context.folder / f"cwd{rank}").mkdir()
    (context.folder / "cwd0/corpus.jsonl").symlink_to(context.fixtures / "corpus.jsonl")
    words = ["--config", write_job(context, "failing"), "--training.dataset_path", "corpus.jsonl"]
    folders = {rank: context.folder / f"cwd{rank}" for rank in (0, 1)}
    jobs = start_plain(context, 2, words, cwd=folders)
    codes = [job.wait(20) for job in jobs]
    expect(codes == [3, 2], f"exit codes {codes}, expected [3, 2]\n{jobs[0].tail()}\n{jobs[1].tail()}")
    check_reason(jobs[1].text(), r"corpus\.jsonl")
    check_reason(jobs[0].text(), r"(?i)rank 1\b")


# name -> (text of the good job file, what replaces it, further command-line words, what the message must hold)
BAD_CONFIGS = {
    "unknown_key": ("steps = 20", "stepz = 20", [], ["stepz", "steps"]),
    "unknown_table": ("[training]", "[trainning]", [], ["trainning", "training"]),
    "wrong_type": ("steps = 20", 'steps = "abc"', [], ["training.steps"]),
    "bad_choice": ('decay_type = "linear"', 'decay_type = "liner"', [], ["liner", "linear"]),
    "syntax": ("steps = 20", "steps = = 20", [], []),
}
# name -> (command-line words, what the message must hold)
BAD_WORDS = {
    "unknown_flag": (["--training.stepz", "5"], ["stepz", "steps"]),
    "flag_value": (["--training.steps", "abc"], ["training.steps", "abc"]),
    "flag_without_value": (["--training.steps"], ["training.steps"]),
    "degrees": (["--parallelism.data_parallel_shard_degree", "3"], ["3"]),
    "no_file": (["--config", "/nonexistent/job.toml"], ["/nonexistent/job.toml"]),
}


def check_refused(context, name, words, fragments):
    """Exit code 2 in less than half a second (best of three: the machine may be busy), `fragments` in the message."""
    seconds = []
    for attempt in range(3):
        job = run(context, 1, words, name=f"{name}{attempt}", timeout_s=20, exit_code=2)
        check_reason(job.errors(), ".")
        for fragment in fragments:
            expect(fragment in job.errors(), f"{name}: the message lacks '{fragment}':\n{job.tail()}")
        seconds.append(job.seconds)
        if seconds[-1] < 0.5:
            return
    expect(False, f"{name}: refused after {min(seconds):.2f} s, expected less than 0.5")


@case(60, kind=list(BAD_CONFIGS))
def bad_config(context, kind):
    """A mistake in the job file is refused at once, with file:line:column and, for a typing error, the right name."""
    good, bad, words, fragments = BAD_CONFIGS[kind]
    path = write_job(context, kind)
    text = path.read_text()
    expect(text.count(good) == 1, f"the job file has no single '{good}'")
    path.write_text(text.replace(good, bad))
    line = text[: text.index(good)].count("\n") + 1
    check_refused(context, kind, ["--config", path, *words], [f"{path.name}:{line}:", *fragments])
    errors = (context.folder / f"logs/{kind}0.err").read_text()
    expect(re.search(rf"{re.escape(path.name)}:{line}:\d+", errors), f"no {path.name}:{line}:COLUMN in:\n{errors}")


@case(60, kind=list(BAD_WORDS))
def bad_command_line(context, kind):
    """A mistake on the command line is refused at once and named."""
    words, fragments = BAD_WORDS[kind]
    config = [] if "--config" in words else ["--config", write_job(context, kind)]
    check_refused(context, kind, [*config, *words], fragments)


@case(60)
def missing_data(context):
    """A data set that is not there is exit code 2 and its path."""
    words = ["--config", write_job(context, "missing"), "--training.dataset_path", "/nonexistent/corpus.jsonl"]
    job = run(context, 1, words, exit_code=2)
    check_reason(job.text(), "/nonexistent/corpus.jsonl")


PREDICTED = {
    "plain": (1, ["--activation_checkpoint.mode", "none"]),
    "full": (2, ["--activation_checkpoint.mode", "full"]),
    "every_second": (2, ["--activation_checkpoint.mode", "selective", "--activation_checkpoint.selective_ac_option", "2"]),
    "by_operator": (2, ["--activation_checkpoint.mode", "selective", "--activation_checkpoint.selective_ac_option", "op"]),
    "float32": (2, ["--activation_checkpoint.mode", "none", "--training.mixed_precision_param", "float32"]),
    "kept": (2, ["--activation_checkpoint.mode", "none", "--parallelism.fsdp_reshard_after_forward", "never"]),
    "copies": (2, ["--parallelism.data_parallel_replicate_degree", 2, "--parallelism.data_parallel_shard_degree", 1]),
    "accumulated": (2, ["--activation_checkpoint.mode", "none", "--training.global_batch_size", 32]),
}
UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


@case(240)
def dry_run_predicts_memory(context):
    """The predicted peak is within 10 % of what the tensors of the run then take of the allocator."""
    for name, (ranks, options) in PREDICTED.items():
        words = ["--config", ROOT / "configs/debug.toml", "--training.steps", 3, "--lr_scheduler.warmup_steps", 1, "--training.device", "cpu"]
        words += ["--model.hf_assets_path", context.fixtures / "tokenizer", "--training.dataset_path", context.fixtures / "corpus"]
        words += ["--job.dump_folder", context.dump(name), *options]
        texts = [run(context, 1, [*words, "--dry-run", "--world-size", ranks], name=f"{name}-dry").text()]
        texts.append(run(context, 1, ["--nproc", ranks, *words], "none", name=name).text())
        found = [re.search(rf"(?:{label}) +([\d.]+) (\w+)", text) for label, text in zip(("predicted peak", "took at most"), texts)]
        expect(all(found), f"{name}: no numbers in\n{texts}")
        predicted, measured = (float(match[1]) * UNITS[match[2]] for match in found)
        expect(abs(predicted / measured - 1) < 0.1, f"{name}: predicted {predicted / 2**20:.1f} MiB, measured {measured / 2**20:.1f} MiB")


@case(120)
def dry_run(context):
    """Every job file of configs/ passes --dry-run, at the degrees that it configures, with nothing written."""
    files = sorted((ROOT / "configs").glob("*.toml"))
    expect(files, "configs/ holds no job file")
    for path in files:
        dump = context.dump(path.stem)
        job = start(context, 1, ["--config", path, "--dry-run", "--job.dump_folder", dump], name=path.stem)
        code = job.wait(60)
        expect(code == 0, f"{path.name}: --dry-run exited with {code}\n{job.tail()}")
        expect(not dump.exists(), f"{path.name}: --dry-run wrote {dump}")


DEVICES = {"H100": (80e9, True), "NVIDIA A100-PCIE-40GB": (40e9, True), "A100-40GB": (40e9, True), "rtx 4090": (24e9, True), "24 GiB": (24 * 2**30, True), "1MiB": (2**20, False)}


@case(60)
def dry_run_device(context):
    """A rank is held against a device that is named, or given by its memory; what is neither is refused."""
    words = ["--config", write_job(context, "small"), "--dry-run", "--device"]
    for index, (device, (size, fits)) in enumerate(DEVICES.items()):
        text = run(context, 1, [*words, device], name=f"device{index}").text()
        line = next(line for line in text.splitlines() if device in line)
        found = re.search(r"(does not fit|fits) \((\d+) % of ([\d.]+) (\w+)\)", line)
        expect(found, line)
        expect((found[1] == "fits") == fits, line)
        unit = {"MiB": 2**20, "GiB": 2**30}[found[4]]
        expect(abs(float(found[3]) * unit - size) <= 0.006 * unit, line)  # printed to a hundredth
    job = run(context, 1, [*words, "H1000"], name="unknown", exit_code=2)
    expect('no device "H1000" is known' in job.text() and "MI300X" in job.text(), job.tail())

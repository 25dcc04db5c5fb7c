"""Tests what a start is refused for before anything is made (files, memory, disk), and the effect of --no-preflight."""
import re

from cases_sweep import run_sweep, write_sweep
from fixtures import ONE_THREAD, write_job
from harness import Job, case, expect, run

HUGE = ["--training.local_batch_size", 1 << 21, "--model.args.n_layers", 1000]  # 16 TiB of the blocks' inputs
# The first activation takes 4 GiB, or 2 in 16 bits.
LARGE = ["--training.local_batch_size", 1 << 15, "--model.args.dim", 512, "--model.args.n_layers", 1]


def refused(context, ranks, words, name, exit_code=2):
    job = run(context, ranks, words, name=name, exit_code=exit_code)
    expect(not context.dump("run").exists(), f"{name}: a refused start made {context.dump('run')}")
    return job.text()


@case(60)
def all_files_at_once(context):
    """Missing data and a missing tokenizer are both named, once, at their places; --dry-run only warns of both."""
    config = write_job(context, "run")
    words = ["--config", config, "--training.dataset_path", "none", "--model.hf_assets_path", "nowhere"]
    text = refused(context, 2, words, "start")
    expect(text.count("error: ") == 2 and "\n2 errors" in text, text)
    for flag, what in (("--training.dataset_path", "none"), ("--model.hf_assets_path", "nowhere")):
        expect(re.search(rf"error: {flag}: .*{what}", text), f"nothing about {flag}\n{text}")
    text = refused(context, 1, [*words, "--dry-run"], "dry", exit_code=0)
    expect(text.count("warning: a start here would be refused: ") == 2 and "predicted peak" in text, text)


@case(60, processors=1)
def without_memory(context):
    """A run that does not fit into memory is refused, with the keys to change; if started anyway, it says what did not
    fit, and in which step."""
    config = write_job(context, "run")
    text = refused(context, 1, ["--config", config, *HUGE], "start")
    expect(re.search(r"will not fit: its tensors take at least .* TiB on each rank, .*training.local_batch_size \(2097152\)", text), text)
    words = ["bash", "-c", 'ulimit -v 3500000; exec "$@"', "bash", context.program, "--config", config, *LARGE, "--no-preflight"]
    job = Job(words, context.folder / "logs", "forced", ONE_THREAD)
    code = job.wait()
    expect(code == 1, f"exit code {code}, expected 1\n{job.tail()}")
    expect(re.search(r"out of memory in step 1: .*--dry-run", job.text()), job.tail())


@case(60, processors=1)
def without_disk(context):
    """A run whose first checkpoint cannot fit on the disk is refused; without checkpoints, or if told so, it is not."""
    config = write_job(context, "run", steps=1)
    large = ["--config", config, "--model.args.vocab_size", 1 << 31, "--checkpoint.enable", "--checkpoint.no-last_save_model_only"]
    text = refused(context, 1, large, "start")
    expect(re.search(r"error: .*checkpoints go to .*/run/checkpoint, where .* free, and the first one takes .* TiB", text), text)
    expect("will not fit" in text and text.endswith("2 errors\n"), text)
    text = refused(context, 1, [*large, "--checkpoint.no-enable"], "without")
    expect("will not fit" in text and "checkpoints go to" not in text, text)


@case(60, processors=1)
def sweep_checks_files(context):
    """A sweep whose trials name missing data starts none of them, and its dry run says so."""
    values = '[sweep.grid]\n"training.dataset_path" = ["%s/corpus.jsonl", "none.jsonl"]\n' % context.fixtures
    sweep, folder = write_sweep(context, "paths", 'objective = "loss"\n' + values, steps=2)
    reason = 'training.dataset_path = "none.jsonl": there is no such file or folder'
    text = run_sweep(context, [sweep], "start", exit_code=2).text()
    expect(f"error: {reason}" in text and not folder.exists(), text)
    text = run_sweep(context, [sweep, "--dry-run"], "dry").text()
    expect(f"refused: error: {reason}" in text and "trial-001" in text, text)


@case(60, processors=1)
def sweep_checks_ranks(context):
    """A trial with more ranks than this machine can hold is refused when the sweep is read, as --nproc refuses it."""
    sweep, folder = write_sweep(context, "crowd", 'nproc = 100000\nobjective = "loss"\n[sweep.grid]\n"debug.seed" = [1]\n', steps=2)
    text = run_sweep(context, [sweep, "--dry-run"], "dry", exit_code=2).text()
    expect(re.search(r"error: sweep.nproc = 100000: this machine has \d+ cores .*; lower it", text), text)
    expect(not folder.exists(), "the sweep made its folder")

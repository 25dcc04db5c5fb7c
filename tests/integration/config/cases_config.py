"""Tests configurations: bad ones are refused with exactly the expected message, good ones have the expected effect."""
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import time
import tomllib

import harness
from bad_config_folders import prepare
from cases_completion import bash_candidates
from fixtures import write_job
from harness import ROOT, Failure, Job, case, expect, read_rows, run

BAD_CONFIGS = ROOT / "tests/bad_configs"
NUM_BAD_CONFIGS = 330  # so that none can disappear unnoticed
# Processor time, because other load on the machine adds to wall time. Three times the longest refusal measured, most of
# which is loading libtorch, because shared cores take longer for the same work.
CPU_LIMIT_S = 1.0  # per process
DIRECTIVE = re.compile(r"# (args|command|env|starts|exit):(.*)")
LOG_LINE = re.compile(rb"^\[titan\] .*\n", re.MULTILINE)


def read_config(path):
    """Returns the text of a bad configuration, which may hold bytes that are not UTF-8."""
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def raw_bytes(word):
    """Returns the word with each \\xHH replaced by that byte."""
    return os.fsdecode(re.sub(rb"\\x([0-9A-F]{2})", lambda match: bytes.fromhex(match[1].decode()), os.fsencode(word)))


@dataclasses.dataclass
class BadConfig:
    """A file NNN-name.toml. Its first lines may say how to run it; the expected message is in NNN-name.txt.

    # args: WORDS       follow `--config NNN-name.toml`
    # command: WORDS    replaces all of that
    # env: NAME=VALUE   further variables
    # starts: true      the mistake is in a file that only a run reads, which logs its start first
    # exit: 1           a checkpoint that cannot be loaded is a failed run, not a bad configuration
    # exit: 0           a doubtful setting that may be right is a warning

    '\\xE9' in one of their words is that byte. The same folder has parts/ and fixtures/, and prepared/ with the
    checkpoints with a fault that bad_config_folders.py makes.
    """

    path: pathlib.Path

    def __post_init__(self):
        found = {}
        for line in read_config(self.path).splitlines():
            match = DIRECTIVE.fullmatch(line)
            if not match:
                break
            found[match[1]] = [raw_bytes(word) for word in shlex.split(match[2])]
        self.words = found.get("command", ["--config", self.path.name, *found.get("args", [])])
        self.num_processes = 1 + int(self.words[self.words.index("--nproc") + 1]) if "--nproc" in self.words else 1
        self.starts = "starts" in found
        self.exit_code = int(*found.get("exit", ["2"]))
        self.env = dict(word.split("=", 1) for word in found.get("env", []))


def clean_environment():
    """Returns this process's environment without what a launcher or a user's shell would add to the configuration."""
    launcher = re.compile(r"TITAN_.*__.*|RANK|WORLD_SIZE|LOCAL_.*|MASTER_.*|OMPI_.*|PMI.*|SLURM_.*|TORCHELASTIC_.*")
    return {name: value for name, value in os.environ.items() if not launcher.fullmatch(name)}


def wait_for_usage(job):
    """Waits for a job. Returns its exit code and its seconds of processor time, including children that it waited for."""

    def ended():
        pid, status, usage = os.wait4(job.process.pid, os.WNOHANG)
        return pid and (os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime)

    job.process.returncode, seconds = harness.wait_until(ended, 60, f"still running: {' '.join(job.command)}")
    harness.JOBS.remove(job)
    return job.process.returncode, seconds


def refuse(context, bad, folder):
    """Returns the message, with its folder replaced by FOLDER, and the seconds of processor and wall time."""
    started = time.monotonic()
    unset = [word for name in os.environ.keys() - clean_environment().keys() for word in ("-u", name)]
    name = bad.path.stem
    job = Job(["env", *unset, context.program, *bad.words], context.folder / "logs", name, {"NO_COLOR": "1", **bad.env}, folder)
    code, cpu_s = wait_for_usage(job)
    wall_s = time.monotonic() - started
    text = job.err_path.read_text(encoding="utf-8").replace(str(folder), "FOLDER")
    if bad.exit_code == 1:
        text = re.sub(r"\d{6,}", "NUMBER", text)  # bytes of a checkpoint, which holds its position in another corpus
    expect(code == bad.exit_code, f"{name}: exit code {code}, expected {bad.exit_code}\n{text[-2000:]}")
    out = job.out_path.read_bytes()
    printed = LOG_LINE.sub(b"", out) if bad.starts else out
    expect(not printed or code == 0, f"{name}: standard output has {printed[:200]}")
    limit_s = CPU_LIMIT_S * bad.num_processes
    expect(cpu_s <= limit_s, f"{name}: took {cpu_s:.2f} s of processor time, allowed are {limit_s:.2f}")
    return text, cpu_s / bad.num_processes, wall_s


def check_bad_config(context, path, folder):
    """Returns the difference from the expected message, or None, and the times."""
    expected = path.with_suffix(".txt")
    try:
        text, *seconds = refuse(context, BadConfig(path), folder)
    except Failure as failure:
        return str(failure), (0, 0)
    if harness.UPDATE:
        expected.write_text(text, encoding="utf-8")
    wanted = expected.read_text(encoding="utf-8") if expected.exists() else "no file\n"
    return f"{path.stem}: the message is\n{text}expected\n{wanted}" if text != wanted else None, seconds


@case(300)
def bad_configs(context):
    """Every file of tests/bad_configs is refused with its message and exit code, without output on stdout, in one second
    of processor time.

    After a change of messages: run.py --update bad_configs, and review the difference.
    """
    folder = context.folder / "bad"
    shutil.copytree(BAD_CONFIGS, folder)
    (folder / "fixtures").symlink_to(context.fixtures)
    busy = prepare(context.program, folder, clean_environment())
    paths = sorted(BAD_CONFIGS.glob("*.toml"))
    expect(len(paths) == NUM_BAD_CONFIGS, f"{len(paths)} bad configurations, expected {NUM_BAD_CONFIGS}")
    orphans = {path.stem for path in BAD_CONFIGS.glob("*.txt")} - {path.stem for path in paths}
    expect(not orphans, f"messages without a configuration: {sorted(orphans)}")
    # Runs two at a time, but complete configurations one after another, since two runs in one dump folder are refused.
    complete = [path for path in paths if "parts/" in read_config(path)]
    groups = [complete, *([path] for path in paths if path not in complete)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda group: [check_bad_config(context, path, folder) for path in group], groups)
        answers = dict(zip([path.stem for group in groups for path in group], sum(found, [])))
    busy.close()
    (cpu_s, wall_s), name = max((tuple(seconds), name) for name, (_, seconds) in answers.items())
    print(f"       the most costly took {cpu_s:.2f} s of processor time a process, {wall_s:.2f} s in all: {name}", flush=True)
    wrong = [message for message, _ in answers.values() if message]
    expect(not wrong, f"{len(wrong)} of {len(paths)} differ\n" + "\n".join(wrong))


def flat(table, prefix=""):
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, prefix + key + ".")
        else:
            yield prefix + key, value


def resolve(context, words, name):
    """Returns {key: value} of the configuration that the program makes of a command line; unset keys are missing."""
    job = run(context, 1, [*words, "--print-config"], launcher="none", name=name)
    return dict(flat(tomllib.loads(job.out_path.read_text())))


# ------------------------------------------------------------------------------------------------ the program itself


@case(60, processors=1)
def resolved_config_repeats(context):
    """The config.toml that a run saves gives the same configuration and repeats the run bit for bit."""
    base = write_job(context, "first", steps=3)
    config = context.folder / "over.toml"
    config.write_text(f'include = ["{base.name}"]\n[training]\nmax_norm = 0.30000000000000004\n')
    words = ["--config", config, "--optimizer.lr", "1e-3", "--training.local_batch_size=3"]
    run(context, 1, words, name="first")
    saved = context.folder / "saved.toml"
    shutil.copy(context.dump("first") / "config.toml", saved)
    before, after = resolve(context, words, "before"), resolve(context, ["--config", saved], "after")
    expect(before["training.max_norm"] == 0.30000000000000004 and before["training.local_batch_size"] == 3, str(before))
    # The key that names the file may differ.
    expect(before.pop("job.config_file") == str(config) and after.pop("job.config_file") == str(saved), "config_file")
    changed = {key: (before.get(key), after.get(key)) for key in before | after if before.get(key) != after.get(key)}
    expect(not changed, f"before and after: {changed}")
    rows = read_rows(context.dump("first") / "metrics.jsonl", exact=True)
    run(context, 1, ["--config", saved, "--job.dump_folder", context.dump("second")], name="second")
    again = read_rows(context.dump("second") / "metrics.jsonl", exact=True)
    expect(len(rows) == 3, f"{len(rows)} rows")
    losses = [[row["loss"] for row in some] for some in (rows, again)]
    expect(losses[0] == losses[1], f"losses {losses[0]}, then {losses[1]}")


@case(60, processors=1)
def config_from_standard_input(context):
    """--config - reads a pipe once, also for the ranks of --nproc; includes are relative to the current directory."""
    config = write_job(context, "piped", steps=2)

    def piped(words, text, **variables):
        command = [context.program, "--config", "-", *words]
        env = {**clean_environment(), **variables}
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, cwd=context.folder, env=env, timeout=60 * harness.TIME_SCALE
        )
        return done.returncode, done.stdout, done.stderr

    text = f'include = ["{config.name}"]\n[debug]\nseed = 7\n'
    code, out, err = piped(["--print-config=changed"], text)
    changed = dict(flat(tomllib.loads(out)))
    expect(code == 0 and changed["debug.seed"] == 7 and changed["training.steps"] == 2, f"{out}{err}")
    code, out, err = piped(["--nproc", "2", "--training.steps", "1"], text)
    expect(code == 0, f"exit code {code}: {out[-2000:]}{err}")
    expect(len(read_rows(context.dump("piped") / "metrics.jsonl")) == 1, "not one step")
    code, out, err = piped(["--dry-run"], "[training]\nsteps = 0\n")
    expect(code == 2 and err.startswith("<stdin>:2:9: error: training.steps: expected"), f"{code} {err}")
    launched = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    code, out, err = piped([], text, **launched)
    expect(code == 2 and "--config -: standard input reaches one rank at most" in err, f"{code} {err}")


@case(60, processors=1)
def config_from_any_pipe(context):
    """A pipe that is named by its descriptor is read once, also for the ranks of --nproc; a named pipe is refused."""
    config = write_job(context, "piped", steps=1)
    for name, source in (("device", f"/dev/stdin < <(cat {config})"), ("substituted", f"<(cat {config})"), ("file", f"/dev/stdin < {config}")):
        words = ["bash", "-c", f"exec {context.program} --nproc 2 --job.dump_folder {context.folder / name} --config {source}"]
        job = harness.Job(words, context.folder / "logs", name)
        code = job.wait(60)
        expect(code == 0, f"{name}: exit code {code}\n{job.tail()}")
        expect(len(read_rows(context.folder / name / "metrics.jsonl")) == 1, f"{name}: not one step")
    os.mkfifo(context.folder / "named")
    job = harness.Job([context.program, "--config", context.folder / "named"], context.folder / "logs", "named")
    expect(job.wait(20) == 2 and "it is not a file" in job.errors(), f"a named pipe\n{job.tail()}")


INIT_MESHES = [  # context parallelism, tensor parallelism, pipelines
    ("llama3/8B", ["--gpus", 64, "--seq-len", 524288]),
    ("llama3/8B", ["--seq-len", 1 << 22]),
    ("llama3/8B", ["--gpus", 1024]),
    ("llama3/70B", ["--gpus", 2048]),
    ("llama3/405B", ["--gpus", 8192]),
]


@case(180, processors=1, models=["on_meshes", "all"], wide=["all"])
def init_is_accepted(context, models):
    """For every model, --dry-run accepts the output of `init` on the GPUs that it names, and it fits them."""
    every = [(model, []) for model in bash_candidates(context, "init", "--model", "")]
    for model, options in every if models == "all" else [every[0], every[-1], *INIT_MESHES]:
        text = run(context, 1, ["init", "--model", model, *options], launcher="none", name="init").out_path.read_text()
        config = context.folder / "job.toml"
        config.write_text(text)
        command = re.search(r"# Check:  titan-train --config job.toml (.*)", text)[1]
        job = run(context, 1, ["--config", config, *command.split()], launcher="none", name=model.replace("/", "-"))
        table = job.out_path.read_text()
        expect("does not fit" not in table and ("--device" not in command or "fits" in table), f"{model}: {table}")


@case(60, processors=1)
def numbers_beyond_their_flags(context):
    """A number that no command can use is refused with what is expected, also NaN and what does not fit into 64 bits."""
    for words, expected in [
        (["compare", "a", "b", "--tolerance", "nan"], "--tolerance: expected a number, 0 to 1e9"),
        (["compare", "a", "b", "--tolerance", "-1"], "--tolerance: expected a number, 0 to 1e9"),
        (["plot", "a", "--smooth", "nan"], "--smooth: expected a number, 0 to 0.999"),
        (["init", "--gpus", 1 << 62], "--gpus: expected an integer, 0 to 1048576"),
        (["init", "--seq-len", 1 << 62], "--seq-len: expected an even number, 2 to 16777216"),
        (["init", "--seq-len", 8191], "--seq-len: expected an even number, 2 to 16777216"),
        (["doctor", "--nproc=-1"], "--nproc: expected an integer, at least 1"),
        (["doctor", "--nproc", 1 << 63], "--nproc: expected an integer, at least 1"),
        (["generate", "--checkpoint", "a", "--num", 1 << 62], "--num: expected an integer, 1 to 1000000"),
        (["generate", "--checkpoint", "a", "--batch", 1 << 62], "--batch: expected an integer, 1 to 1000000"),
    ]:
        text = run(context, 1, words, launcher="none", name="refused", exit_code=2).text()
        expect(expected in text and "error: " in text, f"after {words}: {text}")


@case(60, quick=True, processors=1)
def version_and_help(context):
    """--version, --help and --help TABLE work without a file and without a GPU."""
    text = run(context, 1, ["--version"], name="version").out_path.read_text()
    for pattern in (r"titan-train \d+\.\d+", r"compiler: +(GCC|Clang)", r"torch: +\d+\.\d+", r"CUDA: +\S", r"NCCL: +\S"):
        expect(re.search(pattern, text), f"--version does not match {pattern}:\n{text}")
    index = run(context, 1, ["--help"], name="help").out_path.read_text()
    expect(index.count("\n") <= 55 and "[lr_scheduler]" in index and "decay_type" not in index, index)
    expect(run(context, 1, ["help"], name="word").out_path.read_text() == index, "help is not --help")
    whole = run(context, 1, ["--help", "all"], name="whole").out_path.read_text()
    found = run(context, 1, ["--help", "lr"], name="search").out_path.read_text()
    expect(found.startswith("  --optimizer.lr ("), found)
    sweep = run(context, 1, ["help", "sweep"], name="sweep").out_path.read_text()
    expect("titan-train sweep" in sweep and "--max-parallel" in sweep, sweep)
    expect(run(context, 1, ["-V"], name="short").out_path.read_text() == text, "-V is not --version")
    table = run(context, 1, ["--help", "lr_scheduler"], name="table").out_path.read_text()
    expect(table in whole and table.startswith("[lr_scheduler]") and "decay_type" in table, table)
    key = run(context, 1, ["--help=lr-scheduler.decay-type"], name="key").out_path.read_text()
    expect(key in table and key.count("\n") == 2, key)

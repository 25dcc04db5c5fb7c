"""Configuration: bad ones are refused with exactly the expected words, good ones mean what they say."""
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
from fixtures import write_job
from harness import ROOT, Failure, case, expect, read_rows, run

BAD_CONFIGS = ROOT / "tests/bad_configs"
ATTEMPTS = 5  # other programs may hold the cores for a moment; a program that is slow is slow every time


def limit_s():
    """0.5 s, of a core of one's own: longer where more programs want to run than there are cores."""
    return 0.5 * max(1.0, os.getloadavg()[0] / os.cpu_count())


DIRECTIVE = re.compile(r"# (args|command|env|starts|exit):(.*)")
LOG_LINE = re.compile(rb"^\[titan\] .*\n", re.MULTILINE)


@dataclasses.dataclass
class BadConfig:
    """NNN-name.toml; its first lines may say how it is run, the message is in NNN-name.txt beside it.

    # args: WORDS       follow `--config NNN-name.toml`
    # command: WORDS    instead of all that
    # env: NAME=VALUE   further variables
    # starts: true      the mistake is in a file that only a run reads, which logs its start first
    # exit: 1           a checkpoint that cannot be taken is no bad configuration: a run that failed
    # exit: 0           what is doubtful, and right for somebody, is a warning

    Beside them lie parts/ and fixtures/, and prepared/ with what bad_config_folders.py makes: checkpoints with a fault.
    """

    path: pathlib.Path

    def __post_init__(self):
        found = {}
        for line in self.path.read_text(encoding="utf-8").splitlines():
            match = DIRECTIVE.fullmatch(line)
            if not match:
                break
            found[match[1]] = shlex.split(match[2])
        self.words = found.get("command", ["--config", self.path.name, *found.get("args", [])])
        self.starts = "starts" in found
        self.exit_code = int(*found.get("exit", ["2"]))
        self.env = dict(word.split("=", 1) for word in found.get("env", []))


def clean_environment():
    """This process's, without what a launcher or a user's shell would add to the configuration."""
    launcher = re.compile(r"TITAN_.*__.*|RANK|WORLD_SIZE|LOCAL_.*|MASTER_.*|OMPI_.*|PMI.*|SLURM_.*|TORCHELASTIC_.*")
    return {name: value for name, value in os.environ.items() if not launcher.fullmatch(name)}


def refuse(context, bad, folder):
    """The message, with the folder it ran in taken out; and how long the program took."""
    started = time.monotonic()
    done = subprocess.run(
        [context.program, *bad.words],
        cwd=folder,
        env={**clean_environment(), "NO_COLOR": "1", **bad.env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
    )
    seconds = time.monotonic() - started
    name = bad.path.stem
    text = done.stderr.decode().replace(str(folder), "FOLDER")
    if bad.exit_code == 1:
        text = re.sub(r"\d{6,}", "NUMBER", text)  # bytes of a checkpoint, which holds its place in another corpus
    found, wanted = done.returncode, bad.exit_code
    expect(found == wanted, f"{name}: exit code {found}, expected {wanted}\n{text[-2000:]}")
    printed = LOG_LINE.sub(b"", done.stdout) if bad.starts else done.stdout
    expect(not printed or wanted == 0, f"{name}: standard output has {printed[:200]}")
    return text, seconds


@case(600)
def bad_configs(context):
    """Every file of tests/bad_configs is refused with its message, its exit code, nothing on stdout, within 0.5 s.

    After a change of messages: run.py --update bad_configs, and review the difference.
    """
    folder = context.folder / "bad"
    shutil.copytree(BAD_CONFIGS, folder)
    (folder / "fixtures").symlink_to(context.fixtures)
    busy = prepare(context.program, folder, clean_environment())
    paths = sorted(BAD_CONFIGS.glob("*.toml"))
    expect(len(paths) >= 80, f"only {len(paths)} bad configurations")
    wrong, slowest = [], (0, "")
    for path in paths:
        bad, expected = BadConfig(path), path.with_suffix(".txt")
        try:
            text, seconds = refuse(context, bad, folder)
            for _ in range(ATTEMPTS - 1):
                if seconds > limit_s():
                    seconds = min(seconds, refuse(context, bad, folder)[1])
        except Failure as failure:
            wrong.append(str(failure))
            continue
        slowest = max(slowest, (seconds, path.stem))
        if seconds > limit_s():
            wrong.append(f"{path.stem}: took {seconds:.2f} s, {ATTEMPTS} times; allowed are {limit_s():.2f} s")
        if harness.UPDATE:
            expected.write_text(text, encoding="utf-8")
        elif not expected.exists() or expected.read_text(encoding="utf-8") != text:
            wanted = expected.read_text(encoding="utf-8") if expected.exists() else "no file\n"
            wrong.append(f"{path.stem}: the message is\n{text}expected\n{wanted}")
    print(f"       {len(paths)} configurations, the slowest took {slowest[0]:.2f} s: {slowest[1]}", flush=True)
    expect(not wrong, f"{len(wrong)} of {len(paths)} differ\n" + "\n".join(wrong))
    busy.close()
    orphans = {path.stem for path in BAD_CONFIGS.glob("*.txt")} - {path.stem for path in paths}
    expect(not orphans, f"messages without a configuration: {sorted(orphans)}")


def flat(table, prefix=""):
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, prefix + key + ".")
        else:
            yield prefix + key, value


def resolve(context, words, name):
    """key -> value of the configuration that the program makes of a command line. A key that is not set is missing."""
    job = run(context, 1, [*words, "--print-config"], launcher="none", name=name)
    return dict(flat(tomllib.loads(job.out_path.read_text())))


# ------------------------------------------------------------------------------------------------ the program itself


@case(60)
def resolved_config_repeats(context):
    """The config.toml that a run leaves means the same configuration again, and repeats the run to the last bit."""
    base = write_job(context, "first", steps=3)
    config = context.folder / "over.toml"
    config.write_text(f'include = ["{base.name}"]\n[training]\nmax_norm = 0.30000000000000004\n')
    words = ["--config", config, "--optimizer.lr", "1e-3", "--training.local_batch_size=3"]
    run(context, 1, words, name="first")
    saved = context.folder / "saved.toml"
    shutil.copy(context.dump("first") / "config.toml", saved)
    before, after = resolve(context, words, "before"), resolve(context, ["--config", saved], "after")
    expect(before["training.max_norm"] == 0.30000000000000004 and before["training.local_batch_size"] == 3, str(before))
    # The one key that says where the rest came from.
    expect(before.pop("job.config_file") == str(config) and after.pop("job.config_file") == str(saved), "config_file")
    changed = {key: (before.get(key), after.get(key)) for key in before | after if before.get(key) != after.get(key)}
    expect(not changed, f"before and after: {changed}")
    rows = read_rows(context.dump("first") / "metrics.jsonl", exact=True)
    run(context, 1, ["--config", saved, "--job.dump_folder", context.dump("second")], name="second")
    again = read_rows(context.dump("second") / "metrics.jsonl", exact=True)
    expect(len(rows) == 3, f"{len(rows)} rows")
    losses = [[row["loss"] for row in some] for some in (rows, again)]
    expect(losses[0] == losses[1], f"losses {losses[0]}, then {losses[1]}")


COMPLETE = """
source <("$1" --completion bash)
shift
COMP_WORDS=(titan-train "$@") COMP_CWORD=$#
_titan_train
printf '%s\\n' "${COMPREPLY[@]}"
"""


def complete(context, *words):
    command = ["bash", "-u", "-c", COMPLETE, "bash", context.program, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=context.folder)
    expect(done.returncode == 0 and not done.stderr, f"{words}: {done.stderr}")
    return done.stdout.split()


@case(60)
def bash_completion(context):
    """Commands, flags, values of a flag, files: what bash offers after sourcing the script."""
    (context.folder / "run.toml").touch()
    for words, expected in [
        (["tok"], ["tokenizer", "tokenize"]),
        (["tokenizer", "tr"], ["train"]),
        (["--training.loc"], ["--training.local_batch_size"]),
        (["--checkpoint.no-en"], ["--checkpoint.no-enable", "--checkpoint.no-enable_ft_dataloader_checkpoints", "--checkpoint.no-enable_first_step_checkpoint"]),
        (["--lr_scheduler.decay_type", ""], ["linear", "sqrt", "cosine"]),
        (["--lr-scheduler.decay-type", "c"], ["cosine"]),
        (["--lr_scheduler.decay_type", "=", "s"], ["sqrt"]),
        (["--checkpoint.enable", "="], ["true", "false"]),
        (["--checkpoint.enable", "--world"], ["--world-size"]),
        (["--training.steps", ""], []),
        (["--config", "r"], ["run.toml"]),
        (["--completion", ""], ["bash", "zsh"]),
        (["--help", "model.args."], ["model.args.rope_scaling_args"]),
        (["--print-config", "=", ""], ["origins"]),
    ]:  # fmt: skip
        found = complete(context, *words)
        expect(found == expected, f"after {words}: {found}, expected {expected}")
    expect(len(complete(context, "--")) > 200, "not all flags")


@case(60)
def version_and_help(context):
    """--version, --help and one table of it need no file and no GPU."""
    text = run(context, 1, ["--version"], name="version").out_path.read_text()
    for pattern in (r"titan-train \d+\.\d+", r"compiler: +(GCC|Clang)", r"torch: +\d+\.\d+", r"CUDA: +\S", r"NCCL: +\S"):
        expect(re.search(pattern, text), f"--version does not match {pattern}:\n{text}")
    whole = run(context, 1, ["--help"], name="help").out_path.read_text()
    table = run(context, 1, ["--help", "lr_scheduler"], name="table").out_path.read_text()
    expect(table in whole and table.startswith("[lr_scheduler]") and "decay_type" in table, table)
    key = run(context, 1, ["--help=lr-scheduler.decay-type"], name="key").out_path.read_text()
    expect(key in table and key.count("\n") == 2, key)

"""Configuration: bad ones are refused with exactly the expected words, TorchTitan's mean here what they mean there."""
import dataclasses
import json
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
from harness import ROOT, Failure, Job, case, expect, peer_python, read_rows, run
from torchtitan_configs import PUBLISHED, to_toml

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


# ------------------------------------------------------------------------------------------------ TorchTitan's own

# Every key of JobConfig with its annotation and default; and configurations, read by TorchTitan's ConfigManager.
PEER_CONFIG = """
import dataclasses, json, logging, sys
logging.disable(logging.CRITICAL)
from torchtitan.config import ConfigManager, JobConfig
def walk(value, prefix=""):
    for field in dataclasses.fields(value):
        inner = getattr(value, field.name)
        if dataclasses.is_dataclass(inner):
            yield from walk(inner, prefix + field.name + ".")
        else:
            yield prefix + field.name, (inner, str(field.type))
schema = dict(walk(JobConfig()))
configs = [{key: value for key, (value, _) in walk(ConfigManager().parse_args(words))} for words in json.load(open(sys.argv[1]))]
json.dump({"schema": schema, "configs": configs}, open(sys.argv[2], "w"))
"""


def ask_peer(context, command_lines, name):
    """What TorchTitan makes of them; None where there is no TorchTitan."""
    python = peer_python("torchtitan")
    if python is None:
        return None
    asked, answer = context.folder / f"{name}-asked.json", context.folder / f"{name}-answer.json"
    asked.write_text(json.dumps([[str(word) for word in words] for words in command_lines]))
    job = Job([python, "-c", PEER_CONFIG, asked, answer], context.folder / "logs", name, {"CUDA_VISIBLE_DEVICES": ""})
    expect(job.wait(120) == 0, f"TorchTitan refused\n{job.tail(30)}")
    return json.loads(answer.read_text())


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


def all_keys(context):
    """key -> (type, default) as the program's own documentation has them."""
    docs = run(context, 1, ["--print-docs"], name="docs").out_path.read_text()
    keys, table = {}, ""
    for line in docs.splitlines():
        if line.startswith("### ["):
            table = line[5:-1]
        row = re.match(r"\| `(\w+)` \| ([^|]+) \| `(.*?)` \|", line)
        if row and table:
            keys[f"{table}.{row[1]}"] = (row[2], row[3])
    return keys


KINDS = {"bool": "boolean", "int": "integer", "float": "number", "str": "string"}
KINDS |= {"list[str]": "list of strings", "list[list[str]]": "list of lists of strings"}


def kind_of(annotation):
    """The program's name for a type of TorchTitan's."""
    name = re.sub(r"<class '(\w+)'>", r"\1", annotation)
    name = re.sub(r"typing.Optional\[(.*)\]", r"\1 | None", name)
    parts = [part.strip() for part in name.split("|")]
    optional = " or None" if "None" in parts else ""
    parts = ["str" if part.startswith(("typing.Literal", "Literal")) else part for part in parts if part != "None"]
    if parts == ["float", "int"]:
        parts = ["float"]
    if parts == ["list[str]", "str"]:
        parts = ["list[str]"]  # a file may give one string, too
    expect(len(parts) == 1 and parts[0] in KINDS, f"no name for the type {annotation}")
    return KINDS[parts[0]] + optional


def equal(mine, theirs):
    if isinstance(theirs, float) and isinstance(mine, (int, float)):
        return float(mine) == theirs  # the same double, not about the same
    return type(mine) is type(theirs) and mine == theirs


@case(120)
def torchtitan_schema(context):
    """Every key of TorchTitan 0.2.2's JobConfig is here, of the same type and default; ours besides say so."""
    answer = ask_peer(context, [], "schema")
    if answer is None:
        return
    mine, theirs = all_keys(context), answer["schema"]
    missing = sorted(set(theirs) - set(mine))
    expect(len(theirs) >= 149 and not missing, f"{len(theirs)} keys there; not here: {missing}")
    values = resolve(context, [], "defaults")
    for key, (default, annotation) in theirs.items():
        expect(mine[key][0] == kind_of(annotation), f"{key} is {mine[key][0]} here, {annotation} there")
        if key == "model.hf_assets_path":  # theirs is a folder of their own tests
            continue
        same = equal(values.get(key), default) if default is not None else key not in values
        expect(same, f"{key} is {values.get(key)!r} here by default, {default!r} there")
    docs = (ROOT / "docs/config.md").read_text()
    for key in set(mine) - set(theirs):
        row = next(line for line in docs.splitlines() if line.startswith(f"| `{key.rpartition('.')[2]}` |"))
        marked = "not a key of TorchTitan" in row or key.startswith("model.args.")
        expect(marked, f"{key} is not TorchTitan's, and docs/config.md does not say so")


# What keeps a published configuration from running here; everything else runs as it is.
REFUSED = {
    "llama3_70b": ["parallelism.tensor_parallel_degree"],
    "llama3_405b": [
        "model.converters", "parallelism.tensor_parallel_degree", "parallelism.enable_async_tensor_parallel",
        "compile.enable",
    ],
}  # fmt: skip


def write_published(context, name):
    path = context.folder / f"{name}.toml"
    path.write_text(to_toml(PUBLISHED[name][1]))
    return path


@case(120)
def torchtitan_published(context):
    """TorchTitan's llama3 configurations pass a dry run as they are; what is not built is refused, each key by name."""
    for name, (world_size, _) in PUBLISHED.items():
        words = ["--config", write_published(context, name), "--dry-run", "--world-size", world_size]
        refused = REFUSED.get(name, [])
        job = run(context, 1, words, launcher="none", name=name, exit_code=2 if refused else 0)
        named = re.findall(r"error: ([\w.]+) = .* is known but not built yet: .*; leave the key out", job.errors())
        expect(named == refused, f"{name}: refused {named}, expected {refused}\n{job.tail(30)}")
        # Without those keys it is a configuration like any other.
        defaults = ["--model.converters=", "--parallelism.tensor_parallel_degree", 1, "--compile.no-enable"]
        defaults += ["--parallelism.no-enable_async_tensor_parallel"]
        run(context, 1, [*words, *(defaults if refused else [])], launcher="none", name=f"{name}-built")


OVERRIDES = [
    [],
    ["--training.steps", "1_000", "--optimizer.lr=3e-4", "--checkpoint.enable", "--training.max_norm", "1"],
    ["--checkpoint.exclude_from_loading", "optimizer,dataloader", "--debug.seed=7", "--lr_scheduler.decay_ratio", "None"],
    ["--training.dataloader.prefetch-factor", "2", "--checkpoint.no-last-save-model-only", "--metrics.log-freq=5"],
    ["--training.steps=1", "--training.steps=2", "--parallelism.context_parallel_load_balancer", "None"],
]


@case(240)
def torchtitan_values(context):
    """One TOML file and command line mean the same to TorchTitan and here, for every key that they share."""
    command_lines = []
    for name in PUBLISHED:
        if name not in REFUSED:
            path = write_published(context, name)
            command_lines += [["--job.config_file", path, *overrides] for overrides in OVERRIDES]
    answer = ask_peer(context, command_lines, "values")
    if answer is None:
        return
    for index, (words, theirs) in enumerate(zip(command_lines, answer["configs"])):
        mine = resolve(context, words, f"mine{index}")
        for key, value in theirs.items():
            same = equal(mine.get(key), value) if value is not None else key not in mine
            if value is None and key in mine:
                same = mine[key] == "None"  # TOML has no other spelling for an unset key whose default is set
            expect(same, f"{words[1:]}: {key} is {mine.get(key)!r} here, {value!r} in TorchTitan")


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

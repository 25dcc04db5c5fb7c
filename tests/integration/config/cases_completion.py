"""Tests completion in bash, zsh and fish, and that the candidates match --help."""
import re
import shutil
import subprocess

import harness
from harness import case, expect, run, skip

BASH = """
source <("$1" --completion bash)
compopt() { printf 'compopt %s\\n' "$*"; }
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_titan_train
printf '%s\\n' "${COMPREPLY[@]}"
"""

# Stubs of zsh's completion functions, which work only at a prompt.
ZSH = """
compdef() { : }
_files() { print files }
compset() { : }
_describe() { print -rl -- "${(@P)argv[-1]}" }
eval "$($1 --completion zsh)"
words=("$@") CURRENT=$# PREFIX=${@[-1]}
_titan_train
true
"""

FISH = """
$argv[1] --completion fish | source
complete -C (string join ' ' -- titan-train $argv[2..-1])
"""


def output_lines(context, *command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=30 * harness.TIME_SCALE, cwd=context.folder)
    expect(done.returncode == 0 and not done.stderr, f"{command}: {done.stderr}")
    return [line for line in done.stdout.splitlines() if line]


def bash_candidates(context, *words):
    return output_lines(context, "bash", "-u", "-c", BASH, "bash", context.program, *words)


def zsh_candidates(context, *words):
    return output_lines(context, "zsh", "-f", "-c", ZSH, "zsh", context.program, *words)


def fish_candidates(context, *words):
    command = ["env", f"PATH={context.program.parent}:{harness.os.environ['PATH']}", f"HOME={context.folder}"]
    return output_lines(context, *command, "fish", "-c", FISH, context.program, *words)


COMMANDS = ["init", "tokenizer", "tokenize", "sweep", "report", "plot", "compare", "inspect", "convert", "doctor", "generate", "eval", "schedule", "supervise"]
FILES = "compopt -o filenames"  # readline adds the '/' of folders and quotes blanks
NOTHING = "compopt +o default"


@case(90, processors=1)
def bash_completion(context):
    """bash offers commands, flags, values of flags and files after sourcing the script."""
    for name in ("run.toml", "my run.toml"):
        (context.folder / name).touch()
    (context.folder / "runs").mkdir()
    for words, expected in [
        ([""], [*COMMANDS, "--config"]),
        (["tok"], ["tokenizer", "tokenize"]),
        (["tokenizer", "tr"], ["train"]),
        (["tokenizer", "unknown", "--"], [NOTHING]),
        (["tokenizer", "train", "--ty"], ["--type"]),
        (["tokenizer", "train", "--type", ""], ["bpe", "unigram"]),
        (["tokenizer", "encode", "--tokenizer", "run"], [FILES, "run.toml", "runs"]),
        (["sweep", "r"], [FILES, "run.toml", "runs"]),
        (["sweep", "--max"], ["--max-parallel"]),
        (["sweep", "--max-parallel", ""], [NOTHING]),
        (["inspect", "run."], [FILES, "run.toml"]),
        (["convert", "runs", "my"], [FILES, "my run.toml"]),
        (["convert", "runs", "out", "--to", ""], ["hf", "dcp", "torch"]),
        (["--training.loc"], ["--training.local_batch_size"]),
        (["--checkpoint.no-en"], ["--checkpoint.no-enable", "--checkpoint.no-enable_ft_dataloader_checkpoints", "--checkpoint.no-enable_first_step_checkpoint"]),
        (["--lr_scheduler.decay_type", ""], ["linear", "sqrt", "cosine"]),
        (["--lr-scheduler.decay-type", "c"], ["cosine"]),
        (["--lr_scheduler.decay_type", "=", "s"], ["sqrt"]),
        (["--checkpoint.enable", "="], ["true", "false"]),
        (["--checkpoint.enable", "--world"], ["--world-size"]),
        (["--training.steps", ""], [NOTHING]),
        (["--model.name", ""], ["llama3", "llama2", "qwen2", "qwen3", "smollm3"]),
        (["--model.flavor", "70"], ["70B"]),
        (["--training.dataset", "c4"], ["c4_test", "c4", "c4_validation"]),
        (["--parallelism.pipeline_parallel_schedule", "Inter"], ["Interleaved1F1B", "InterleavedZeroBubble"]),
        (["--device", "A100"], ["A100", "A100-40GB"]),
        (["--config", "r"], [FILES, "run.toml", "runs"]),
        (["-c", "my"], [FILES, "my run.toml"]),
        (["--config", "my\\ r"], [FILES, "my run.toml"]),
        (["--config", '"my r'], [FILES, "my run.toml"]),
        (["--completion", ""], ["bash", "zsh", "fish"]),
        (["--help", "model.args."], ["model.args.rope_scaling_args"]),
        (["--print-config", "=", ""], ["origins", "changed"]),
    ]:  # fmt: skip
        found = bash_candidates(context, *words)
        expect(sorted(found) == sorted(expected), f"after {words}: {found}, expected {expected}")
    expect(len(bash_candidates(context, "--")) > 200, "not all flags")


@case(60, processors=1)
def zsh_completion(context):
    """zsh gets words with descriptions, completes the part after '=', and files by itself."""
    if shutil.which("zsh") is None:
        skip("zsh")
    for words, expected in [
        (["tokenizer", "tr"], ["train"]),
        (["sweep", "--max"], ["--max-parallel:trials at once, instead of sweep.max_parallel"]),
        (["inspect", "run."], ["files"]),
        (["--lr_scheduler.decay_type", "c"], ["cosine"]),
        (["--lr_scheduler.decay_type=s"], ["sqrt"]),
        (["--training.steps", ""], []),
        (["--training.dataset_p"], ["--training.dataset_path:file or folder with the data"]),
        (["--profiling.ranks"], ["--profiling.ranks:which ranks write traces and snapshots\\: all, or some, as in 0,4-7 (not a key of TorchTitan)"]),
        (["--config", "r"], ["files"]),
    ]:  # fmt: skip
        found = zsh_candidates(context, *words)
        expect(found == expected, f"after {words}: {found}, expected {expected}")


@case(60, processors=1)
def fish_completion(context):
    """fish gets words with descriptions, candidates that repeat the flag before '=', and files by itself."""
    if shutil.which("fish") is None:
        skip("fish")
    (context.folder / "run.toml").touch()
    for words, expected in [
        (["tokenizer", "tr"], ["train"]),
        (["sweep", "--max"], ["--max-parallel\ttrials at once, instead of sweep.max_parallel"]),
        (["inspect", "run."], ["run.toml"]),
        (["--lr_scheduler.decay_type", "c"], ["cosine"]),
        (["--lr_scheduler.decay_type=s"], ["--lr_scheduler.decay_type=sqrt"]),
        (["--training.steps", "''"], []),
        (["--training.dataset_p"], ["--training.dataset_path\tfile or folder with the data"]),
        (["--config", "r"], ["run.toml"]),
        (["--config=r"], ["--config=run.toml"]),
        (["--config", "'r"], ["run.toml"]),
        (["--config", "$HOME/r"], ["$HOME/run.toml"]),
    ]:  # fmt: skip
        found = fish_candidates(context, *words)
        expect(found == expected, f"after {words}: {found}, expected {expected}")


@case(60, processors=1)
def completion_is_current(context):
    """Completion offers exactly the flags of each command's --help, and the known models and devices."""
    two_words = [["tokenizer", word] for word in ("train", "encode", "decode")]
    for command in [*two_words, *([name] for name in COMMANDS if name != "tokenizer")]:
        text = run(context, 1, [*command, "--help"], launcher="none", name="-".join(command)).out_path.read_text()
        flags = set(re.findall(r"^ +(?:-h,)?(--[a-z-]+)", text, re.MULTILINE))
        completed = set(bash_candidates(context, *command, "--"))
        expect(flags == completed, f"{command}: {flags ^ completed} in one of --help and completion")

    def known(*words):
        return run(context, 1, ["--dry-run", *words], launcher="none", name="known", exit_code=2).text()

    models = {name: known("--model.name", name, "--model.flavor", "?") for name in bash_candidates(context, "--model.name", "")}
    for flavor in bash_candidates(context, "--model.flavor", ""):
        expect(any(re.search(rf"\b{flavor}\b", text) for text in models.values()), f"{flavor} is not a flavor: {models}")
    listed = {word for text in models.values() for word in re.search(r"Flavors: (.*)\. Other sizes", text)[1].split(", ")}
    expect(listed == set(bash_candidates(context, "--model.flavor", "")), f"flavors {listed}")
    devices = known("--device", "?")
    for device in bash_candidates(context, "--device", ""):
        expect(device.split("-")[0] in devices, f"{device} is not in {devices}")

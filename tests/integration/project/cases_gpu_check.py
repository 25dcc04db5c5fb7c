"""Tests scripts/gpu_check.sh itself: what it counts, reports and refuses. A GPU is simulated; runs are real."""
import json
import os
import re
import subprocess

from harness import ROOT, TIME_SCALE, VENV, Job, case, expect

# Replaces bin/titan-train: the program on the CPU instead of the GPU, at sizes that take no time.
ON_CPU = """#!/bin/bash
words=()
for word in "$@"; do
  case $word in
    cuda) word=cpu ;;
    768 | 512 | 256) word=64 ;;
    32000) word=2048 ;;
    12) word=2 ;;
  esac
  words+=("$word")
done
if [[ " $* " == *" --model.args.dim 2048 "* ]]; then
  words+=(--model.args.dim 64 --model.args.n_layers 2 --model.args.n_heads 4 --model.args.n_kv_heads 2)
  words+=(--model.args.vocab_size 512 --training.seq_len 64)
fi
if [[ " $* " == *" --config "* ]]; then
  [[ " $* " == *" --training.local_batch_size "* ]] || words+=(--training.local_batch_size 2)
  [[ " $* " == *" --training.seq_len "* ]] || words+=(--training.seq_len 64)
  [[ " $* " == *" --model.args.dim "* ]] || words+=(--model.args.dim 64 --model.args.n_heads 4 --model.args.n_layers 1)
fi
exec "PROGRAM" "${words[@]}"
"""
# Replaces Python: PyTorch's FSDP2 would load for seconds, to say that there is no GPU.
PYTHON = """#!/bin/bash
[[ $1 != -m ]] || exit 1
exec "PROGRAM" "$@"
"""
# Replaces a Python with TorchTitan: it claims to have it, and prints what the trainer would.
PEER = """#!/bin/bash
[[ $1 != -c ]] || exit 0
for ((step = 1; step <= 20; step++)); do
  echo "[titan] INFO - step: $(printf %2d $step)  loss:  7.50000  grad_norm:  1.0000  memory:  2.50GiB(3.10%)  tps: 1,000  tflops: 1.00  mfu: 1.00%"
done
"""
# Replaces compute-sanitizer: runs the program that comes after the options.
SANITIZER = """#!/bin/bash
while [[ $1 == --* ]]; do
  case $1 in
    --track-stream-ordered-races | --report-api-errors | --error-exitcode | --target-processes | --tool | --kernel-name) shift 2 ;;
    *) exit 2 ;;
  esac
done
"$@" && echo "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"
"""
# Replaces tests/cuda_device_test: one case that passes and one that is skipped.
DEVICE_TEST = """#!/bin/sh
case $1 in
  --gtest_list_tests) printf 'CudaDevice.\\n  Works\\n  IsSkipped\\n' ;;
  *Works | *'F*' | *'Fused*') echo '[  PASSED  ] 1 test.' ;;
  *IsSkipped) printf '[  PASSED  ] 0 tests.\\n[  SKIPPED ] 1 test\\n' ;;
  *) exit 1 ;;
esac
"""


def write_script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def make_folder(context, program=ON_CPU, gpus=1):
    """Makes a folder like an installed one with this text as its program, and a PATH on which nvidia-smi shows the GPUs."""
    tree = context.folder / "tree"
    (tree / "lib").mkdir(parents=True)
    (tree / "lib/libtitan_engine.so").touch()
    for name in ("assets", "configs", "scripts"):
        (tree / name).symlink_to(ROOT / name)
    write_script(tree / "bin/titan-train", program.replace("PROGRAM", str(context.program)))
    write_script(tree / "tests/cuda_device_test", DEVICE_TEST)
    (tree / "tests/reference").symlink_to(ROOT / "tests/reference")
    write_script(context.folder / "python", PYTHON.replace("PROGRAM", str(VENV / "python")))
    write_script(context.folder / "peer", PEER)
    write_script(context.folder / "path/nvidia-smi", "#!/bin/sh\n" + "echo 'A simulated GPU, 1.0, 1 MiB'\n" * gpus)
    return tree


def check(context, name, words, env=None):
    path = f"{context.folder / 'path'}:{os.environ['PATH']}"
    surroundings = {"PATH": path, "TITAN_PYTHON": str(context.folder / "python"), "CUDA_VISIBLE_DEVICES": "", "TITAN_PEER_PYTHON": ""}
    job = Job(["bash", *words], context.folder / "logs", name, {**surroundings, "TITAN_TIME_SCALE": str(TIME_SCALE), **(env or {})})
    return job, job.wait(300)


MUST_FAIL = {
    "device: IsSkipped",
    "one rank: a profile, and a memory snapshot",
    "one rank: no more memory than PyTorch's FSDP2",
    # The peak of so small a run is the process itself.
    "1B: no more memory than the dry run says",
    "1B: what does not fit ends with its reason",
}
# They compare the memory of two runs that are the same on a CPU.
MAY_FAIL = {"one rank: parameters, gradients and optimizer state on the host", "1B, own kernels: speed and memory"}


def check_sums(job, content):
    """Checks that the last line, the lines of checks, the rows of the table and the report count the same checks."""
    results = [row["passed"] for row in content["checks"]]
    expected = [sum(results), len(results) - sum(results), len(content["skipped"])]
    last = re.fullmatch(r"(\d+) passed, (\d+) failed, (\d+) skipped", job.text().splitlines()[-1])
    expect(last and [*map(int, last.groups())] == expected, f"the last line is not {expected}\n{job.tail()}")
    lines = re.findall(r"^(?:ok    |FAILED|skipped) \S", job.text(), re.M)
    table = re.findall(r"^(?:(?:passed|failed) +\d+|skipped     )  ", job.text(), re.M)
    expect(len(lines) == len(table) == sum(expected), f"{len(lines)} lines and {len(table)} rows for {expected}")


@case(240, tier="wide")
def gpu_check_counts_and_reports(context):
    """Each check is one line, a skipped device case and impossible comparisons count as failed, and table and report agree."""
    tree = make_folder(context)
    write_script(context.folder / "path/compute-sanitizer", SANITIZER)
    report = context.folder / "report.json"
    words = [tree / "scripts/gpu_check.sh", tree, "--json", report]
    job, code = check(context, "check", words, {"TITAN_PEER_PYTHON": str(context.folder / "peer")})
    expect(code == 1, f"exit code {code}, expected 1 because of failed checks\n{job.tail(60)}")
    content = json.loads(report.read_text())
    results = {row["name"]: row["passed"] for row in content["checks"]}
    for name, passed in results.items():
        expect(passed == (name not in MUST_FAIL) or name in MAY_FAIL, f"'{name}': passed is {passed}\n{job.tail(200)}")
    for part, number in (("the CPU's losses", 10), ("1B", 15), ("resume", 2), ("compute-sanitizer", 4), ("device: Works", 1)):
        names = [name for name in results if part in name]
        expect(len(names) == number, f"the checks with '{part}' are {names}, expected {number}")
    check_sums(job, content)
    expect(content["hardware"]["gpus"] == ["A simulated GPU, 1.0, 1 MiB"] and content["date"], f"report: {content}")
    skipped = [(row["name"].split(" over ")[0], row["reason"]) for row in content["skipped"]]
    expect(set(skipped) == {(f"{word} GPUs", f"needs {n} GPUs") for n, word in ((2, "two"), (4, "four"), (8, "eight"))}, f"skipped: {skipped}")
    runs = content["runs"]
    expect(runs["one"]["memory_peak_bytes"] > 0 and runs["1b-plain"]["peak_over_prediction"] > 1.053, f"runs: {runs}")
    ratio = runs["1b-torchtitan-compiled"]["ours_over_theirs"]["tokens_per_second"]
    expect(ratio == runs["1b-speed"]["tokens_per_second"] / 1000, f"tokens/s ratio {ratio}, {runs['1b-speed']} of 1000")


# Sets what gpu_check.sh sets before it reads gpu_check_runs.sh, and makes one check of each kind that runs out of time.
OUT_OF_TIME = """
here=$1 work=$2 results=$2 program=false device_test=false python=false peer='' only='' running=''
touch "$results/checks" "$results/skipped"
. "$here/scripts/gpu_check_runs.sh"
check 20 "in time" within true
only='^cut' && check 20 "not named by --only" false && only=''
check 1 "too slow" within sleep 60
check 1 "compute-sanitizer: too slow" within sleep 60
end=$((SECONDS + 5)) # more than one, which may pass before the check begins
check 60 "cut" within sleep 60
check 60 "not begun" within true
echo "$passed passed, $failed failed, $skipped skipped"
"""


@case(40, processors=1)
def gpu_check_stops_what_hangs(context):
    """A check that hangs fails; checks cut off by the ten minutes, and a slow sanitizer, are skipped by name."""
    # The limit is less than the three sleeps.
    command = ["bash", "-c", OUT_OF_TIME, "check", ROOT, context.folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, "TITAN_TIME_SCALE": "1"})
    expect(done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}{done.stderr}")
    expect(done.stdout.splitlines()[-1] == "1 passed, 1 failed, 3 skipped", done.stdout)
    for line in (
        "ok     in time",
        "FAILED too slow: within sleep 60",
        "  | found: stopped after 1 seconds",
        "skipped compute-sanitizer: too slow: needs more than 1 seconds",
        "skipped cut: the ten minutes were over before its end",
        "skipped not begun: the ten minutes are over",
    ):
        expect(line in done.stdout.splitlines(), f"no line '{line}' in\n{done.stdout}")


def write_run(folder, losses, first=1, weights=("0a", "0b"), last_loss=None):
    """Writes metrics.jsonl, validation.jsonl and checksums.jsonl of a run whose last two steps have checksums."""
    folder.mkdir()
    rows = [{"step": first + i, "loss": loss, "max_loss": loss, "grad_norm": 1.0, "memory_peak_bytes": 100} for i, loss in enumerate(losses)]
    if last_loss is not None:
        rows[-1]["loss"] = last_loss
    last = rows[-1]["step"]
    sums = [{"step": last - 1 + i, "gradients": {"w": "1"}, "weights": {"v": "2", "w": value}} for i, value in enumerate(weights)]
    for name, content in (("metrics", rows), ("validation", [{"step": last, "loss": losses[-1]}]), ("checksums", sums)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in content))
    return folder


@case(30, processors=1)
def gpu_check_compares_runs(context):
    """One bit, one checksum, a missing step or a NaN is a difference; steps before a resume are not."""
    folder = context.folder
    whole = write_run(folder / "whole", [3.0, 2.5, 2.25, 2.0])
    equal = write_run(folder / "equal", [3.0, 2.5, 2.25, 2.0])
    resumed = write_run(folder / "resumed", [2.25, 2.0], first=3)
    bit = write_run(folder / "bit", [3.0, 2.5, 2.2500000000000004, 2.0])
    sums = write_run(folder / "sums", [3.0, 2.5, 2.25, 2.0], weights=("0a", "0c"))
    longer = write_run(folder / "longer", [3.0, 2.5, 2.25, 2.0, 1.5])
    nan = write_run(folder / "nan", [3.0, 2.0], last_loss="NaN")
    forecast, run = folder / "forecast.json", folder / "run.json"
    forecast.write_text(json.dumps({"peak_bytes": 80, "pooled_bytes": 10}))
    log = folder / "log"
    log.write_text("step:  1  loss:  8.0  grad_norm:  1.0  memory:  2.00GiB(1%)  tps: 1,000\n")
    for text, words, answer in (
        ("equal rows: 4 metrics, 1 validation, 2 checksums", ["same", equal, whole], True),
        ("equal rows: 2 metrics", ["same", resumed, whole], True),
        ("metrics.jsonl: step 3 differs: loss 2.2500000000000004 and 2.25", ["same", bit, whole], False),
        ("checksums.jsonl: step 4 differs: 1 of 2 weights, first w", ["same", sums, whole], False),
        ("metrics.jsonl: steps [1, 2, 3, 4, 5] and [1, 2, 3, 4]", ["same", longer, whole], False),
        ("no finite loss at the end", ["same", nan, nan], False),
        ("largest relative difference", ["close", "1e-9", bit, whole], True),
        ("metrics.jsonl has 2 and 4 rows", ["close", "1e-3", resumed, whole], False),
        ("largest relative difference inf", ["close", "1e-3", nan, nan], False),
        ("steps [3, 4]", ["begins", "3", resumed], True),
        ("steps [1, 2, 3, 4]", ["begins", "3", whole], False),
        ("= 1.111, allowed 1.2", ["predicted", "1.2", run, forecast], True),
        ("= 1.111, allowed 1.1", ["predicted", "1.1", run, forecast], False),
        ("1,000 tokens/s, 2.00 GiB", ["torchtitan", "1", log, folder / "theirs.json", run], True),
        ("steps ['1'] of 2", ["torchtitan", "2", log, folder / "theirs.json", run], False),
    ):
        run.write_text(json.dumps({"memory_peak_bytes": 100, "tokens_per_second": 500.0}))
        command = [VENV / "python", ROOT / "scripts/gpu_check_rows.py", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        expect(done.returncode == (0 if answer else 1) and text in done.stdout, f"{words}: exit code {done.returncode}, '{text}' not in\n{done.stdout}{done.stderr}")


@case(30, processors=1)
def gpu_check_refuses(context):
    """If there is nothing to check, it exits with code 2 and the reason, and never passes."""
    tree = make_folder(context)
    script = tree / "scripts/gpu_check.sh"
    empty = context.folder / "empty"
    empty.mkdir()
    for name, words, text in (
        ("option", [script, "--fast"], "unknown option --fast"),
        ("folder", [script, empty], f"{empty}/titan-train is not there"),
    ):
        job, code = check(context, name, words)
        expect(code == 2 and text in job.errors(), f"{name}: exit code {code}\n{job.tail()}")
    job, code = check(context, "peer", [script, tree], {"TITAN_PEER_PYTHON": str(VENV / "python")})
    expect(code == 2 and "has no torchtitan" in job.errors(), f"peer: exit code {code}\n{job.tail()}")
    write_script(context.folder / "path/nvidia-smi", "#!/bin/sh\nexit 9\n")
    job, code = check(context, "gpu", [script, tree])
    expect(code == 2 and "shows no GPU" in job.errors(), f"no GPU: exit code {code}\n{job.tail()}")

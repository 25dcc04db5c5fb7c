"""scripts/gpu_check.sh by itself: what it counts, reports and refuses. A GPU is simulated; the training runs are real, on the CPU."""
import json
import os
import re

from harness import ROOT, VENV, Job, case, expect

# In place of bin/titan-train: the program on the CPU instead of the GPU, at sizes that take no time.
ON_CPU = """#!/bin/bash
words=()
for word in "$@"; do
  case $word in
    cuda) word=cpu ;;
    768 | 512) word=64 ;;
    32000) word=2048 ;;
    12) word=2 ;;
  esac
  words+=("$word")
done
if [[ " $* " == *" --config "* ]]; then
  [[ " $* " == *" --training.local_batch_size "* ]] || words+=(--training.local_batch_size 2)
  [[ " $* " == *" --training.seq_len "* ]] || words+=(--training.seq_len 64)
  [[ " $* " == *" --model.args.dim "* ]] || words+=(--model.args.dim 64 --model.args.n_heads 4 --model.args.n_layers 1)
fi
exec "PROGRAM" "${words[@]}"
"""
# In place of Python: PyTorch's FSDP2 would load for seconds, to say that there is no GPU.
PYTHON = """#!/bin/bash
[[ $1 != -m ]] || exit 1
exec "PROGRAM" "$@"
"""
# In place of tests/cuda_device_test: one case that passes and one that is skipped.
DEVICE_TEST = """#!/bin/sh
case $1 in
  --gtest_list_tests) printf 'CudaDevice.\\n  Works\\n  IsSkipped\\n' ;;
  *Works) echo '[  PASSED  ] 1 test.' ;;
  *IsSkipped) printf '[  PASSED  ] 0 tests.\\n[  SKIPPED ] 1 test\\n' ;;
  *) exit 1 ;;
esac
"""


def write_script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def make_folder(context):
    """Like an installed folder, and a PATH on which nvidia-smi shows one GPU."""
    tree = context.folder / "tree"
    (tree / "libexec").mkdir(parents=True)
    for name in ("assets", "configs", "scripts"):
        (tree / name).symlink_to(ROOT / name)
    write_script(tree / "bin/titan-train", ON_CPU.replace("PROGRAM", str(context.program)))
    write_script(tree / "tests/cuda_device_test", DEVICE_TEST)
    (tree / "tests/reference").symlink_to(ROOT / "tests/reference")
    write_script(context.folder / "python", PYTHON.replace("PROGRAM", str(VENV / "python")))
    write_script(context.folder / "path/nvidia-smi", "#!/bin/sh\necho 'A simulated GPU, 1.0, 1 MiB'\n")
    return tree


def check(context, name, words, env=None):
    path = f"{context.folder / 'path'}:{os.environ['PATH']}"
    surroundings = {"PATH": path, "TITAN_PYTHON": str(context.folder / "python"), "CUDA_VISIBLE_DEVICES": "", **(env or {})}
    job = Job(["bash", *words], context.folder / "logs", name, surroundings)
    return job, job.wait(200)


@case(120)
def gpu_check_counts_and_reports(context):
    """Each check is one line, a skipped device case and an impossible comparison count as failed, and the report agrees."""
    tree = make_folder(context)
    report = context.folder / "report.json"
    job, code = check(context, "check", [tree / "scripts/gpu_check.sh", tree, "--json", report])
    expect(code == 1, f"exit code {code}, expected 1 because of failed checks\n{job.tail(60)}")
    lines = re.findall(r"^(?:ok    |FAILED) ", job.text(), re.M)
    results = {row["name"]: row["passed"] for row in json.loads(report.read_text())["checks"]}
    must_pass = ["device: Works", "one rank: the loss falls", "one rank: deterministic runs are equal"]
    must_pass += ["one rank: the same bits with every launch blocking", "two ranks on one GPU over Gloo: the loss falls"]
    must_pass += [name for name in results if "the CPU's losses" in name]
    must_fail = ["device: IsSkipped", "one rank: a profile, and a memory snapshot", "one rank: no more memory than PyTorch's FSDP2"]
    expect(len(must_pass) == 8, f"the checks against the CPU are {must_pass[5:]}, expected three")
    for name in must_pass:
        expect(results.get(name) is True, f"'{name}' did not pass\n{job.tail(80)}")
    for name in must_fail:
        expect(results.get(name) is False, f"'{name}' did not fail\n{job.tail(80)}")
    passed, failed = map(int, re.fullmatch(r"(\d+) passed, (\d+) failed", job.text().splitlines()[-1]).groups())
    expect((passed, failed) == (sum(results.values()), len(results) - sum(results.values())), f"last line says {passed}, {failed}; report {results}")
    expect(len(lines) == len(results), f"{len(lines)} lines for {len(results)} checks")
    content = json.loads(report.read_text())
    expect(content["hardware"]["gpus"] == ["A simulated GPU, 1.0, 1 MiB"] and content["date"], f"report: {content}")
    expect(content["runs"]["one"]["memory_peak_bytes"] > 0 and content["left_out"], f"report: {content}")


@case(30, processors=1)
def gpu_check_refuses(context):
    """Nothing to check is exit code 2 and the reason, never a pass."""
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
    write_script(context.folder / "path/nvidia-smi", "#!/bin/sh\nexit 9\n")
    job, code = check(context, "gpu", [script, tree])
    expect(code == 2 and "shows no GPU" in job.errors(), f"no GPU: exit code {code}\n{job.tail()}")

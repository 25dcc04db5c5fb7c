"""Tests titan-train doctor: a machine that is ready, and the line that names what is wrong with one that is not."""
import json
import os
import re
import shlex
import subprocess

from cases_launch import commands_of
from fixtures import write_job
from harness import ROOT, VENV, Job, case, expect, free_port, launcher_words, run, skip

ALWAYS = {"program", "CPU", "threads", "memory", "devices", "open files", "/dev/shm", "locked memory", "launch", "checkpoint disk", "matmul", "products"}


def doctor(context, words=(), prefix=(), name="doctor", exit_code=0, env=None):
    """Returns the checks of the command's --json object."""
    command = [*prefix, context.program, "doctor", "--json", *words]
    job = Job(command, context.folder / "logs", name, env)
    code = job.wait(60)
    expect(code == exit_code, f"exit code {code}, expected {exit_code}\n{job.tail(60)}")
    report = json.loads(job.out_path.read_text())
    expect(report["ok"] == (exit_code == 0), f"ok is {report['ok']}, the exit code {exit_code}")
    return report["checks"]


def check_named(checks, name, state, text):
    """Checks that some line of that name is in that state, with what was found and what to do."""
    lines = [check for check in checks if check["name"] == name]
    found = [check for check in lines if check["state"] == state and text in check["found"]]
    expect(found, f"{name}: {lines}, expected a {state} with {text!r}")
    expect(state == "ok" or found[0]["advice"], f"{name}: no advice")


@case(90, quick=["none"], launcher=["none", "nproc", "torchrun", "mpirun"])
def doctor_healthy(context, launcher):
    """Alone and at two ranks under every launcher: exit code 0, one report, rates of the ranks."""
    ranks = 1 if launcher == "none" else 2
    own = ["--nproc", 2] if launcher == "nproc" else []
    checks = doctor(context, own, launcher_words(launcher, ranks), env={"GLOO_SOCKET_IFNAME": "lo"})
    names = [check["name"] for check in checks]
    rates = {"all-gather", "reduce-scatter"} if ranks == 2 else set()
    expect(ALWAYS | rates <= set(names), f"checks {names}, without {sorted((ALWAYS | rates) - set(names))}")
    check_named(checks, "launch", "ok", f"{ranks} rank")
    check_named(checks, "GLOO_SOCKET_IFNAME", "ok", "lo (127.0.0.1)")
    for name in rates:
        expect(any(check["name"] == name and "GB/s" in check["found"] for check in checks), f"{name} has no rate")


AXES = {  # the degrees of the two ranks, and what their axis exchanges
    "fsdp": ([], "all-gather between 2 ranks"),
    "dp_replicate": (["--parallelism.data_parallel_replicate_degree", 2, "--parallelism.data_parallel_shard_degree", 1], "all-reduce between 2 ranks"),
    "cp": (["--parallelism.context_parallel_degree", 2, "--parallelism.context_parallel_rotate_method", "alltoall"], "send and receive in a ring between 2 ranks"),
    "tp": (["--parallelism.tensor_parallel_degree", 2], "reduce-scatter between 2 ranks"),
    "pp": (["--parallelism.pipeline_parallel_degree", 2], "send and receive between 2 ranks"),
}


@case(120)
def doctor_measures_each_axis(context):
    """With a run's degrees, each axis of several ranks has a line with its exchange, rate and delay; other axes have none."""
    config = write_job(context, "job")
    for axis, (words, what) in AXES.items():
        checks = doctor(context, ["--nproc", 2, "--config", config, *words], name=axis)
        found = {check["name"]: check["found"] for check in checks if check["name"].startswith("axis")}
        # The ranks of a sequence share a copy of the weights too.
        expected = {f"axis {axis}", "axis fsdp"} if axis == "cp" else {f"axis {axis}"}
        expect(set(found) == expected, f"{axis}: axes {found}")
        rate = re.fullmatch(rf"{what}: [\d.]+ GB/s to each \(\d+ MiB in [\d.]+ ms\), \d+ us for 4 KiB", found[f"axis {axis}"])
        expect(rate, f"{axis}: {found}")


@case(60)
def doctor_text(context):
    """Without --json: one line per check, and a last one with the counts; nothing from ranks other than the first."""
    job = run(context, 2, ["doctor"], launcher="torchrun", env={"GLOO_SOCKET_IFNAME": "lo"})
    text = job.out_path.read_text()
    for name in ALWAYS:
        lines = [line for line in text.splitlines() if line[10:].startswith(name)]
        expect(lines and all(line.split()[0] in ("ok", "warning", "failure") for line in lines), f"no line of {name}:\n{text}")
    expect(text.count("titan-train ") == 1, f"more than one report:\n{text}")


@case(60, processors=1)
def doctor_names_what_is_wrong(context):
    """Names a low limit of open files, a missing interface, an unwritable folder, and contradicting variables."""
    checks = doctor(context, prefix=["bash", "-c", 'ulimit -n 128; exec "$@"', "bash"], name="files", exit_code=1)
    check_named(checks, "open files", "failure", "at most 128")
    checks = doctor(context, name="interface", exit_code=1, env={"GLOO_SOCKET_IFNAME": "nosuch0"})
    check_named(checks, "GLOO_SOCKET_IFNAME", "failure", "nosuch0")
    checks = doctor(context, ["--job.dump_folder", "/proc/run"], name="disk", exit_code=1)
    check_named(checks, "checkpoint disk", "failure", "/proc cannot be written")
    checks = doctor(context, name="variables", exit_code=1, env={"RANK": "2", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"})
    check_named(checks, "launch", "failure", "RANK")


@case(60, processors=1)
def doctor_finds_a_slow_dtype(context):
    """A configured dtype that this processor multiplies far more slowly than another is a finding, with what to set.
    PyTorch's own 16-bit matmuls on AVX2 take ten times as long as those in float32."""
    words = ["--config", write_job(context, "job"), "--cpu.kernels", "aten", "--cpu.instructions", "avx2"]
    for dtype in ("bfloat16", "float16"):
        checks = doctor(context, [*words, "--training.mixed_precision_param", dtype], name=dtype)
        check_named(checks, "products", "warning", f"{dtype} takes ")
        advice = [check["advice"] for check in checks if check["name"] == "products"]
        expect(advice == ['set training.mixed_precision_param = "float32", or cpu.kernels = "own", whose products are fast'], advice)


@case(30, processors=1)
def doctor_small_shared_memory(context):
    """A /dev/shm of a megabyte, as containers may have it, is named."""
    prefix = ["unshare", "--mount", "bash", "-c", 'mount -t tmpfs -o size=1m none /dev/shm && exec "$@"', "bash"]
    if os.geteuid() != 0 or subprocess.run([*prefix, "true"], capture_output=True).returncode != 0:
        skip("the right to mount")
    checks = doctor(context, prefix=prefix)
    check_named(checks, "/dev/shm", "warning", "1.00 MiB")


@case(60, processors=1)
def doctor_of_a_run(context):
    """--config: what the run needs is checked too, and a problem with it is a line of the report."""
    config = write_job(context, "job")
    checks = doctor(context, ["--config", config], name="right")
    for name in ("configuration", "files of the run", "room for the run"):
        check_named(checks, name, "ok", "")
    checks = doctor(context, ["--config", config, "--training.dataset_path", "nowhere.jsonl"], name="data", exit_code=1)
    check_named(checks, "files of the run", "failure", "nowhere.jsonl")
    checks = doctor(context, ["--config", config, "--training.seq_len", "63"], name="key", exit_code=1)
    check_named(checks, "configuration", "failure", "training.seq_len")
    job = Job([context.program, "doctor", "--no-such-flag"], context.folder / "logs", "wrong")
    expect(job.wait(30) == 2, f"a wrong command line was taken\n{job.tail()}")


@case(90)
def doctor_lines(context):
    """Every line of docs/doctor.md that this machine can run finds no failure; the others are Slurm's."""
    config, done = write_job(context, "job"), []
    for line in commands_of(ROOT / "docs/doctor.md"):
        if not re.match(r"(titan-train|torchrun|mpirun) ", line):
            continue
        words = shlex.split(line.replace("job.toml", str(config)))
        words = [str(context.program) if word == "titan-train" else word for word in words]
        if words[0] == "torchrun":
            words[:1] = [str(VENV / "torchrun"), "--master-port", str(free_port())]
        if words[0] == "mpirun":
            words[1:1] = ["--allow-run-as-root", "--oversubscribe"]
        job = Job(words, context.folder / "logs", f"line{len(done)}")
        code = job.wait()
        expect(code == 0, f"{line}: exit code {code}\n{job.tail(40)}")
        done.append(words[0])
    expect(len(done) == 6 and len(set(done)) == 3, f"lines that were found: {done}")

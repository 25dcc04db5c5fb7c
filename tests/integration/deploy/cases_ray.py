"""Tests deploy/ray_job.py with a Ray of one node, which pip takes from the index."""
import json
import os
import shutil
import signal
import tempfile
import urllib.request

from cases_wheel import finished
from cluster_sweep import check_cluster_sweep
from fixtures import write_job
from harness import (
    ROOT, VENV, Gate, Job, at_row, case, check_identical, expect, faults, free_port, kill, processes_marked, rows_by_step, run, wait_until,
)  # fmt: skip

RAY = "ray[default]==2.60.0"
JOB = ROOT / "deploy/ray_job.py"
KEYS = ("loss", "max_loss", "grad_norm", "lr", "tokens_seen")
# The rules of tests/support/fault.cpp need this beside TITAN_FAULT.
PASSED = "--env LD_PRELOAD"


# Stands in for Ray's module: it runs the one job as a child. As Ray does, it signals all processes of a job that is
# stopped, and then keeps no exit code.
STAND_IN = """
import asyncio, enum, os, signal, subprocess, types

class JobStatus(str, enum.Enum):
    SUCCEEDED, FAILED, STOPPED = "SUCCEEDED", "FAILED", "STOPPED"
    def is_terminal(self):
        return True

class JobSubmissionClient:
    def __init__(self, address):
        self.log, self.stopped = "", False
    def submit_job(self, entrypoint, runtime_env, **_):
        env = {**os.environ, **runtime_env["env_vars"]}
        self.process = subprocess.Popen(entrypoint, shell=True, stdout=subprocess.PIPE, text=True, env=env, start_new_session=True)
        return "job"
    def stop_job(self, job):
        self.stopped = True
        os.killpg(self.process.pid, signal.SIGTERM)
    async def tail_job_logs(self, job):
        self.log = await asyncio.to_thread(self.process.stdout.read)
        yield self.log
    def get_job_logs(self, job):
        return self.log
    def get_job_info(self, job):
        code = self.process.wait()
        status = JobStatus.STOPPED if self.stopped else JobStatus.FAILED if code else JobStatus.SUCCEEDED
        return types.SimpleNamespace(status=status, driver_exit_code=None if self.stopped else code, message="", submission_id=job)
"""


@case(60, processors=1)
def ray_job_in_short(context):
    """ray_job.py with a module that stands in for Ray's: an exit code, a stop that saves, and a Python without Ray."""
    module = context.folder / "modules/ray"
    module.mkdir(parents=True)
    (module / "__init__.py").touch()
    (module / "job_submission.py").write_text(STAND_IN)
    env = {"PYTHONPATH": str(module.parent)}
    failed = Job([VENV / "python", JOB, "--", "sh", "-c", "echo $OMP_NUM_THREADS; exit 7"], context.folder / "logs", "failed", env)
    expect(failed.wait() == 7 and failed.text().startswith("1\n"), failed.tail())
    gate = Gate(context, "fifth-row")
    words = ["--", context.program, "--config", write_job(context, "stopped"), "--checkpoint.enable"]
    job = Job([VENV / "python", JOB, *words], context.folder / "logs", "stopped", {**env, **faults(context, gate.rule(at_row(5)))})
    gate.wait(job)
    kill(job.process.pid, signal.SIGTERM)
    gate.wait(job, happened="signalled")
    gate.open()
    expect(job.wait() == 75 and (context.dump("stopped") / "checkpoint/step-6").exists(), f"no save\n{job.tail()}")
    bare = Job([VENV / "python", JOB, "--", "true"], context.folder / "logs", "bare")
    expect(bare.wait() == 1 and "pip install 'ray[default]'" in bare.errors(), bare.tail())


class LocalRay:
    """Holds a head node on this machine. Use it with `with`."""

    def __init__(self, context):
        env = context.folder / "env"
        finished(context, "venv", [VENV / "python", "-m", "venv", env])
        pip = [env / "bin/python", "-m", "pip", "--disable-pip-version-check"]
        finished(context, "install", [*pip, "install", "-q", RAY], 600)
        # Its sockets need a short path.
        self.folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")
        self.address = f"http://127.0.0.1:{free_port()}"
        # The last one makes Ray listen on 127.0.0.1 alone; otherwise it would take the machine's own address.
        self.env = {"PATH": f"{env / 'bin'}:{os.environ['PATH']}", "RAY_API_SERVER_ADDRESS": self.address}
        self.env |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
        words = ["ray", "start", "--head", "--block", "--disable-usage-stats", "--num-cpus", "4", "--port", free_port()]
        words += ["--node-ip-address", "127.0.0.1", "--dashboard-host", "127.0.0.1", "--dashboard-port", self.address.rpartition(":")[2]]
        words += ["--object-store-memory", 100 << 20, "--temp-dir", self.folder]
        self.head = Job(words, context.folder / "logs", "ray", self.env)
        wait_until(self.answers, 60, f"Ray does not answer\n{self.head.tail()}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.head.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def answers(self):
        expect(self.head.process.poll() is None, f"Ray has ended\n{self.head.tail()}")
        try:
            return self.jobs() is not None
        except OSError:
            return False

    def all_jobs(self):
        with urllib.request.urlopen(f"{self.address}/api/jobs/", timeout=60) as answer:
            return {job["submission_id"]: job["status"] for job in json.load(answer)}

    def jobs(self):
        return [name for name, status in self.all_jobs().items() if status in ("PENDING", "RUNNING")]


def check_exit_code(context, ray):
    """`ray job submit` would end with 1; output and number of threads are those of the command."""
    words = ["--ranks", "2", "--cpus", "4", "--", "sh", "-c", "echo $2 $OMP_NUM_THREADS; exit 7", "sh"]
    job = Job([JOB, *words], context.folder / "logs", "code", {**ray.env, "OMP_NUM_THREADS": ""})
    code = job.wait()
    expect(code == 7 and "\n2 2\n" in job.text(), f"exit code {code}\n{job.tail()}")


def check_restart(context, ray):
    """A run that someone else stops is started again, and ends with an undisturbed run's losses."""
    run(context, 2, ["--config", write_job(context, "straight")], name="straight")
    gate = Gate(context, "eighth-row")
    flags = ["--checkpoint.enable", "--checkpoint.no-last_save_model_only"]
    words = [*PASSED.split(), "--ranks", "2", "--restarts", "1", "--", context.program, "--config", write_job(context, "restarted"), *flags]
    job = Job([JOB, *words], context.folder / "logs", "restarted", {**ray.env, **faults(context, gate.rule(at_row(8)))})
    gate.wait(job)
    for pid in job.ranks(context.program).values():
        kill(pid, signal.SIGUSR1)
    gate.wait(job, happened="signalled")
    gate.open()
    code = job.wait()
    expect(code == 0 and "exit code 75: start 2 of at most 2" in job.text(), f"exit code {code}\n{job.tail(30)}")
    found, straight = (rows_by_step(context.dump(name) / "metrics.jsonl", exact=True) for name in ("restarted", "straight"))
    check_identical(found, straight, KEYS, "started again")


@case(1200, tier="long")
def ray_jobs(context):
    """In a real Ray: exit codes, a restart, and a sweep with a failing trial that is stopped, killed and resumed."""
    with LocalRay(context) as ray:
        check_exit_code(context, ray)
        check_restart(context, ray)
        launcher = f"launcher = \"'{JOB}' --name {{folder}} --ranks {{ranks}} --cpus {{cores}} --gpus {{gpus}} {PASSED} -- {{command}}\"\n"
        left = check_cluster_sweep(context, launcher, ray.env, ray.jobs)
        expect(ray.all_jobs()[left] == "STOPPED", f"job {left}, which had outlived its sweep, is {ray.all_jobs()[left]}")
        marked = processes_marked(ray.head.mark)
    expect(marked, "Ray's processes are not found by their mark, so nothing ends them")

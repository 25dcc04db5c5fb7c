"""Tests deploy/trainjob.yaml and sky.yaml: their commands train as on two nodes, and their systems' own packages accept them."""
import os
import shlex
import subprocess

import yaml

from cases_wheel import finished
from fixtures import write_job
from harness import (
    ROOT, VENV, Gate, Job, at_row, case, check_identical, expect, faults, free_port, read_rows, rows_by_step, run, skip,
)  # fmt: skip

KEYS = ("loss", "max_loss", "grad_norm", "lr", "tokens_seen")
FULL = ["--checkpoint.enable", "--checkpoint.no-last_save_model_only"]


def trainjob():
    """Returns the TrainJob, and the pod of its runtime's nodes."""
    job, runtime = yaml.safe_load_all((ROOT / "deploy/trainjob.yaml").read_text())
    expect((job["kind"], runtime["kind"]) == ("TrainJob", "TrainingRuntime"), f"{job['kind']}, {runtime['kind']}")
    expect(job["spec"]["runtimeRef"] == {"kind": "TrainingRuntime", "name": runtime["metadata"]["name"]}, f"{job['spec']['runtimeRef']}")
    (node,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    return job, node["template"]["spec"]["template"]["spec"]


def command_of(config):
    words = trainjob()[0]["spec"]["trainer"]["command"]
    expect(words[-2:] == ["--config", "/work/job.toml"], f"{words}")
    return [*words[:-1], str(config)]


def path_of(context):
    return f"{context.program.parent}:{VENV}:{os.environ['PATH']}"


def of_trainer(node, port, nodes=2, ranks=1):
    """Returns the variables that Kubeflow Trainer's torch policy sets."""
    return {
        "PET_NNODES": str(nodes), "PET_NPROC_PER_NODE": str(ranks), "PET_NODE_RANK": str(node), "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(port)
    }  # fmt: skip


def check_two_nodes(context, name, start):
    """start(node, port) returns a Job. Checks that the two are one run of two ranks and as many steps as its file says."""
    port = free_port()
    jobs = [start(node, port) for node in range(2)]
    for job in jobs:
        code = job.wait()
        expect(code == 0, f"exit code {code}\n{job.tail()}")
    expect("2 ranks" in jobs[0].text(), f"not one run of two ranks\n{jobs[0].tail()}")
    expect(len(read_rows(context.dump(name) / "metrics.jsonl")) == 3, "not three steps")


@case(60)
def trainjob_command(context):
    """The command of trainjob.yaml, on two nodes that are both this machine, with the variables of Kubeflow Trainer."""
    words = command_of(write_job(context, "trainjob", steps=3))
    env = {"PATH": path_of(context)}
    check_two_nodes(context, "trainjob", lambda node, port: Job(words, context.folder / "logs", f"node{node}", {**env, **of_trainer(node, port)}))


@case(60)
def sky_command(context):
    """The run section of sky.yaml, on two nodes that are both this machine, with SkyPilot's variables."""
    task = yaml.safe_load((ROOT / "deploy/sky.yaml").read_text())
    expect(task["envs"]["RUN"].startswith(tuple(task["file_mounts"])), "the run is not in the bucket")
    (context.folder / "titan").mkdir()
    (context.folder / "titan/bin").symlink_to(VENV)
    env = {"HOME": str(context.folder), "PATH": path_of(context), "SKYPILOT_NUM_NODES": "2", "SKYPILOT_NUM_GPUS_PER_NODE": "1"}
    env |= {"SKYPILOT_NODE_IPS": "127.0.0.1\n127.0.0.2", "CONFIG": str(write_job(context, "sky", steps=3)), "RUN": str(context.dump("sky"))}

    def start(node, port):
        variables = {**env, "SKYPILOT_NODE_RANK": str(node), "MASTER_PORT": str(port)}
        return Job(["bash", "-euc", task["run"]], context.folder / "logs", f"node{node}", variables)

    check_two_nodes(context, "sky", start)


def has_pid_namespaces():
    return subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True).returncode == 0


@case(120)
def trainjob_evicted(context):
    """An evicted pod's preStop lets the ranks save; the restarted pod ends with an undisturbed run's losses."""
    if not has_pid_namespaces():
        skip("the right to make a process namespace")
    run(context, 2, ["--config", write_job(context, "straight")], name="straight")
    words = [*command_of(write_job(context, "evicted")), *FULL]
    pod = trainjob()[1]
    expect(pod["restartPolicy"] == "Never" and pod["terminationGracePeriodSeconds"] >= 600, "no time to save")
    pre_stop = shlex.join(pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"])
    # The namespace is the pod: preStop finds its processes by name.
    stop = context.folder / "evict"
    script = f"{shlex.join(map(str, words))} & main=$!\nuntil [ -e {stop} ]; do sleep 0.1; done\n{pre_stop}\ntouch {stop}.done\nwait $main"
    gate = Gate(context, "eighth-row")
    env = {"PATH": path_of(context), **of_trainer(0, free_port(), nodes=1, ranks=2)}
    pod_words = ["unshare", "--pid", "--fork", "--mount-proc", "bash", "-c", script]
    job = Job(pod_words, context.folder / "logs", "evicted", {**env, **faults(context, gate.rule(at_row(8)))})
    gate.wait(job)
    stop.touch()
    gate.wait(job, happened="signalled")
    expect(not stop.with_name("evict.done").exists(), "preStop does not wait for the save")
    gate.open()
    code = job.wait()
    expect(code == 1 and stop.with_name("evict.done").exists(), f"exit code {code}\n{job.tail()}")
    again = Job(words, context.folder / "logs", "again", {**env, **of_trainer(0, free_port(), nodes=1, ranks=2)})
    expect(again.wait() == 0 and "step-9" in again.text(), f"it did not resume\n{again.tail()}")
    found, straight = (rows_by_step(context.dump(name) / "metrics.jsonl", exact=True) for name in ("evicted", "straight"))
    check_identical(found, straight, KEYS, "evicted")


# The models ignore unknown fields, so what they have read is compared with the file.
OF_KUBEFLOW = """
import sys, yaml, kubeflow_trainer_api.models as models
for given in yaml.safe_load_all(open(sys.argv[1])):
    read = getattr(models, "TrainerV1alpha1" + given["kind"]).from_dict(given).to_dict()
    assert read == given, f"read as {read}"
"""
OF_SKYPILOT = """
import sys, sky
task = sky.Task.from_yaml(sys.argv[1])
assert task.num_nodes == 2 and list(task.storage_mounts) == ["/outputs"], task
(resources,) = task.resources
assert resources.use_spot and resources.job_recovery["max_restarts_on_errors"] == 3, resources
"""


@case(900, tier="long", system=["kubeflow", "skypilot"])
def cluster_file(context, system):
    """The models of Kubeflow's API, and SkyPilot itself, accept the files; both packages come from the index."""
    package, script, file = {
        "kubeflow": ("kubeflow-trainer-api==2.3.0", OF_KUBEFLOW, "trainjob.yaml"),
        "skypilot": ("skypilot==0.14.1", OF_SKYPILOT, "sky.yaml"),
    }[system]
    env = context.folder / "env"
    finished(context, "venv", [VENV / "python", "-m", "venv", env])
    finished(context, "install", [env / "bin/python", "-m", "pip", "--disable-pip-version-check", "install", "-q", package, "pyyaml"], 600)
    quiet = {"HOME": str(context.folder), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    finished(context, "check", [env / "bin/python", "-c", script, ROOT / "deploy" / file], 60, quiet, ROOT)

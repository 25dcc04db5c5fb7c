"""Tests runs in containers that lack what a machine has."""
import os
import subprocess

from fixtures import write_job
from harness import Job, case, check_identical, expect, rows_by_step, run, skip

KEYS = ("loss", "max_loss", "grad_norm", "lr", "tokens_seen")
# Maps what is missing to what is mounted before the program starts, in a name space of its own.
CONTAINERS = {
    "little_shared_memory": "mount -t tmpfs -o size=64k none /dev/shm",
    "no_shared_memory": "mount -t tmpfs -o ro none /dev/shm",
    "no_settings_of_the_system": "mount -t tmpfs none /proc/sys",
}


@case(90)
def narrow_container(context):
    """Ranks that cannot share memory, or cannot read the system's settings, train to the same rows."""
    run(context, 3, ["--config", write_job(context, "straight", steps=4)], name="straight")
    expected = rows_by_step(context.dump("straight") / "metrics.jsonl", exact=True)
    for name, mount in CONTAINERS.items():
        inside = ["unshare", "--mount", "bash", "-c", f'{mount} && exec "$@"', "bash"]
        if os.geteuid() != 0 or subprocess.run([*inside, "true"], capture_output=True).returncode != 0:
            skip("the right to mount")
        words = [context.program, "--nproc", 3, "--config", write_job(context, name, steps=4)]
        job = Job([*inside, *words], context.folder / "logs", name)
        code = job.wait()
        expect(code == 0, f"{name}: exit code {code}\n{job.tail(30)}")
        check_identical(rows_by_step(context.dump(name) / "metrics.jsonl", exact=True), expected, KEYS, name)

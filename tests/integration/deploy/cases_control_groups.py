"""Tests runs in real control groups, as those of a container or a Slurm step, with limits of memory, threads and processors."""
import contextlib
import json
import os
import pathlib
import re
import uuid

from cases_failure import check_reason
from fixtures import write_job
from harness import Job, case, expect, kill, skip, wait_until

MIB = 2**20
SWAP = ["memory.memsw.limit_in_bytes", "memory.swap.max"]  # missing where the system counts no swap space
# Each controller's files in version 1 and in version 2.
LIMITS = {
    "memory": lambda size: ({"memory.limit_in_bytes": size, SWAP[0]: size}, {"memory.max": size, SWAP[1]: 0}),
    "pids": lambda number: ({"pids.max": number}, {"pids.max": number}),
    "cpu": lambda cores: ({"cpu.cfs_quota_us": int(cores * 100_000)}, {"cpu.max": f"{int(cores * 100_000)} 100000"}),
}


def own_group(controller):
    """Returns the folder of this process's group, and 0 for version 1, 1 for version 2. Skips the case if there is none."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        root = pathlib.Path("/sys/fs/cgroup", controllers)
        if controller in controllers.split(",") or (not controllers and (root / "cgroup.controllers").exists()):
            folder = root / path.lstrip("/")
            if folder.is_dir():  # otherwise the path is one of the host's, which this container does not see
                return folder, int(not controllers)
    return skip("the right to make control groups")


@contextlib.contextmanager
def control_group(controller, limit):
    """Makes a group with the limit below this process's. Yields the words that start a command in it."""
    parent, version = own_group(controller)
    folder = parent / f"titan-test-{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir()
        try:
            for name, value in LIMITS[controller](limit)[version].items():
                if (folder / name).exists() or name not in SWAP:
                    (folder / name).write_text(str(value))
        except OSError:
            folder.rmdir()
            raise
    except OSError:
        skip("the right to make control groups")
    try:
        yield ["bash", "-c", f'echo $$ > {folder}/cgroup.procs && exec "$@"', "bash"]
    finally:
        for pid in (folder / "cgroup.procs").read_text().split():
            kill(int(pid), 9)
        wait_until(lambda: not (folder / "cgroup.procs").read_text(), 30, f"{folder} has processes")
        folder.rmdir()


def run_in(inside, context, words, name, exit_code):
    job = Job([*inside, context.program, *words], context.folder / "logs", name)
    code = job.wait(60)
    expect(code == exit_code, f"{name}: exit code {code}, expected {exit_code}\n{job.tail(30)}")
    return job


OWNER = r"this container or control group \(memory\.max 900\.00 MiB\) has "


@case(60)
def control_group_with_little_memory(context):
    """A run that needs more memory than its control group may have is refused before it trains, and so are too many ranks.
    If it is started anyway, the system kills a rank, and the reason is said. Cached files do not count as used."""
    large = ["--config", write_job(context, "run"), "--model.args.vocab_size", 1_000_000]  # 512 MB, four times with the moments
    with control_group("memory", 900 * MIB) as inside:
        data = context.folder / "data"
        run_cached = ["dd", "if=/dev/zero", f"of={data}", "bs=1M", "count=1024"]
        expect(Job([*inside, *run_cached], context.folder / "logs", "cached").wait(60) == 0, "dd failed")
        job = run_in(inside, context, large, "refused", 2)
        found = re.search(OWNER + r"([\d.]+) MiB of free memory for 1 rank", job.errors())
        expect(found and float(found[1]) > 600, job.tail())  # the program itself, and not the file
        job = run_in(inside, context, ["--nproc", 8, *large], "ranks", 2)
        check_reason(job.errors(), OWNER + r"\d+ cores? and [\d.]+ MiB of free memory, enough for [1-4] ranks")
        job = run_in(inside, context, ["--nproc", 2, "--no-preflight", *large], "killed", 137)
        check_reason(
            job.errors(),
            r"titan-train: rank [01] was ended by SIGKILL; the system has meanwhile killed [12] of the processes of this "
            r"container or control group, whose memory \(900\.00 MiB, memory\.max\) was used up",
        )


@case(60, processors=1)
def control_group_with_few_threads(context):
    """A run that may not start a thread more names the limit of its control group."""
    with control_group("pids", 3) as inside:
        job = run_in(inside, context, ["--config", write_job(context, "run")], "few", 1)
        check_reason(job.errors(), r"no further thread or process can be started here; .*3 in its container or control group \(pids\.max; \d are in use\)")


@case(60, processors=1)
def control_group_with_one_processor(context):
    """A rank whose control group has the time of one processor has one thread."""
    variables = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    with control_group("cpu", 1) as inside:
        words = [*inside, "env", "-u", "OMP_NUM_THREADS", context.program, "doctor", "--config", write_job(context, "run"), "--json"]
        job = Job(words, context.folder / "logs", "one", variables)
        job.wait(60)
    threads = next(check for check in json.loads(job.out_path.read_text())["checks"] if check["name"] == "threads")
    expect("1 thread on 1 core" in threads["found"] and threads["state"] == "ok", f"{threads}")

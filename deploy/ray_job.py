#!/usr/bin/env python3
"""Runs a command as a Ray job, prints its output, and ends with its exit code; a trial of a sweep, or a training run.

    ray_job.py [--address URL] [--name NAME] [--ranks N] [--cpus N] [--gpus N] [--restarts N] -- PROGRAM [ARGUMENTS]

    titan-train sweep SWEEP.toml --max-parallel 8 \\
        --launcher 'deploy/ray_job.py --name {folder} --ranks {ranks} --cpus {cores} --gpus {gpus} -- {command}'
    deploy/ray_job.py --name pretrain --ranks 8 --gpus 8 --restarts 20 -- titan-train --config job.toml

The job runs on one node that has the CPUs and GPUs, in the folder of this call, which the nodes must share. The first
SIGTERM or SIGINT lets the program save; the second does not wait for it. Needs the package "ray[default]", in the version
of the cluster. `ray job submit` serves less: it ends with 1 whatever the program's code is, and a signal to it leaves the
job running.
"""

import argparse
import asyncio
import os
import re
import shlex
import signal
import sys

try:
    from ray.job_submission import JobStatus, JobSubmissionClient
except ImportError:
    sys.exit(f"ray_job.py: error: {sys.executable} has no Ray; pip install 'ray[default]', in the version of the cluster")

SAVED = 75  # the program has saved on a signal, and resumes when it is started again
LOST = 3  # the node was lost, or Ray cannot say how the job ended
STOPPED = 143  # a stop before the program could save
# Ray's own record of a job that was stopped has no exit code.
EXIT_LINE = "ray_job.py: exit code "


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--address", help="of Ray's dashboard (default: RAY_API_SERVER_ADDRESS, else http://127.0.0.1:8265)")
    parser.add_argument("--name", help="two jobs of one name never run at once: an earlier one is stopped first")
    parser.add_argument("--ranks", type=int, default=1, help="adds --nproc to the command (default: 1)")
    parser.add_argument("--cpus", type=float, help="CPUs that Ray reserves (default: one per rank)")
    parser.add_argument("--gpus", type=float, default=0, help="GPUs that Ray reserves")
    parser.add_argument("--env", action="append", default=[], metavar="NAME", help="also pass this variable; TITAN_* are passed anyway")
    parser.add_argument("--save-seconds", type=int, default=600, help="after a stop, what the program gets to save (default: 600)")
    parser.add_argument("--restarts", type=int, default=0, help="how often to start again after a save that nobody asked for here, or a lost node")
    parser.add_argument("command", nargs="+", metavar="PROGRAM")
    options = parser.parse_args(words)
    options.cpus = options.ranks if options.cpus is None else options.cpus
    if options.ranks > 1:
        options.command += ["--nproc", str(options.ranks)]
    return options


def entrypoint(command: list[str]) -> str:
    """Returns shell text that outlives a stop of the command, and prints its exit code."""
    here = shlex.quote(os.getcwd())
    return f"trap : TERM; cd {here} && {shlex.join(command)}; code=$?; echo '{EXIT_LINE}'$code; exit $code"


def variables(options: argparse.Namespace) -> dict[str, str]:
    # Ray would give every rank as many threads as the job has CPUs.
    passed = {"OMP_NUM_THREADS": str(max(1, int(options.cpus) // options.ranks))}
    for name, value in os.environ.items():
        if value and (name in options.env or name == "OMP_NUM_THREADS" or name.startswith("TITAN_")):
            passed[name] = value
    return {**passed, "RAY_JOB_STOP_WAIT_TIME_S": str(options.save_seconds)}


async def wait_for_end(client: JobSubmissionClient, job: str):
    while not (details := client.get_job_info(job)).status.is_terminal():
        await asyncio.sleep(0.5)
    return details


async def stop_earlier(client: JobSubmissionClient, name: str) -> None:
    for details in client.list_jobs():
        if (details.metadata or {}).get("name") == name and not details.status.is_terminal():
            print(f"ray_job.py: stops job {details.submission_id}, an earlier one of this name", flush=True)
            client.stop_job(details.submission_id)
            await wait_for_end(client, details.submission_id)


async def print_output(client: JobSubmissionClient, job: str) -> None:
    try:
        async for text in client.tail_job_logs(job):
            print(text, end="", flush=True)
    except Exception as error:  # the job goes on without its output here
        print(f"ray_job.py: no more output of job {job}: {error}; `ray job logs {job}` has it", file=sys.stderr)


def code_of(client: JobSubmissionClient, details) -> int:
    if details.driver_exit_code is not None:
        return details.driver_exit_code
    found = re.findall(f"^{EXIT_LINE}([0-9]+)$", client.get_job_logs(details.submission_id), re.MULTILINE)
    if found:
        return int(found[-1])
    print(f"ray_job.py: job {details.submission_id}: {details.status}: {details.message}", file=sys.stderr)
    return STOPPED if details.status == JobStatus.STOPPED else LOST


class Stop:
    """Passes the first signal on to the job that runs; a second one ends this program."""

    def __init__(self, client: JobSubmissionClient):
        self.client, self.job, self.requested = client, None, False
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.request)

    def request(self) -> None:
        if self.requested:
            print("ray_job.py: asked to stop again; Ray ends the job, and this does not wait for it", file=sys.stderr, flush=True)
            os._exit(STOPPED)
        self.requested = True
        if self.job:
            self.client.stop_job(self.job)


async def run(options: argparse.Namespace) -> int:
    client = JobSubmissionClient(options.address or os.environ.get("RAY_API_SERVER_ADDRESS") or "http://127.0.0.1:8265")
    stop = Stop(client)
    if options.name:
        await stop_earlier(client, options.name)
    for start in range(options.restarts + 1):
        if stop.requested:
            return STOPPED
        stop.job = client.submit_job(
            entrypoint=entrypoint(options.command),
            runtime_env={"env_vars": variables(options)},
            metadata={"name": options.name} if options.name else None,
            entrypoint_num_cpus=options.cpus,
            entrypoint_num_gpus=options.gpus,
        )
        await print_output(client, stop.job)
        code = code_of(client, await wait_for_end(client, stop.job))
        if stop.requested or code not in (SAVED, LOST):
            break
        if start < options.restarts:
            print(f"ray_job.py: exit code {code}: start {start + 2} of at most {options.restarts + 1}", flush=True)
    return code


def main() -> int:
    try:
        return asyncio.run(run(parse(sys.argv[1:])))
    except (ConnectionError, RuntimeError) as error:
        print(f"ray_job.py: error: {error}", file=sys.stderr)
        return LOST


if __name__ == "__main__":
    sys.exit(main())

"""Tests deploy/titan.sbatch and deploy/sbatch_trial.sh: in short with commands that stand in for Slurm's, and with a real Slurm."""
import os
import re
import signal
import subprocess

from cases_sweep import log_of, run_sweep, start_sweep, steps_trained, trials_of, write_sweep
from cluster_sweep import WHY, check_cluster_sweep, failing
from fixtures import write_job
from harness import (
    ROOT, TIME_SCALE, Gate, at_row, case, check_identical, expect, faults, kill, rows_by_step, run, wait_until,
)  # fmt: skip
from local_slurm import LocalSlurm

SCRIPT = ROOT / "deploy/titan.sbatch"
TRIAL = ROOT / "deploy/sbatch_trial.sh"
FULL = ["--checkpoint.enable", "--checkpoint.no-last_save_model_only"]
KEYS = ("loss", "max_loss", "grad_norm", "lr", "tokens_seen")


def write_commands(folder, commands):
    """Writes shell scripts that are found before Slurm's commands of the same names. Returns the variables for that."""
    folder.mkdir()
    for name, text in commands.items():
        (folder / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}", "STATE": str(folder)}


@case(30, quick=True, processors=1)
def launch_slurm_script(context):
    """deploy/titan.sbatch, with an srun that only records its call: one task per rank, and a signal in time."""
    record = 'printf "%s\\n" "$@" > "$STATE/{}.words"; exit ${{CODE:-0}}'
    env = write_commands(context.folder / "bin", {name: record.format(name) for name in ("srun", "scontrol")})
    calls, requeues = (context.folder / f"bin/{name}.words" for name in ("srun", "scontrol"))
    for code, variables, requeued in (("0", {}, False), ("1", {}, False), ("75", {}, True), ("75", {"SBATCH_NO_REQUEUE": "1"}, False)):
        requeues.unlink(missing_ok=True)
        command = ["bash", SCRIPT, "--config", "job.toml", "--training.steps", "5"]
        surroundings = {**os.environ, **env, "SLURM_JOB_ID": "7", "CODE": code, **variables}
        done = subprocess.run(command, env=surroundings, capture_output=True, text=True, timeout=20 * TIME_SCALE)
        words = calls.read_text().splitlines()
        expect(words[-5:] == ["titan-train", "--config", "job.toml", "--training.steps", "5"], f"srun got {words}")
        expect(requeues.exists() == requeued, f"exit code {code}: requeued: {requeues.exists()}\n{done.stderr}")
        expect(not requeued or requeues.read_text().split() == ["requeue", "7"], "another job was queued again")
        expect(requeued or done.returncode == int(code), f"exit code {done.returncode}, expected {code}")
    expect(re.search(r"^#SBATCH --signal=USR1@\d+$", SCRIPT.read_text(), re.MULTILINE), "nobody tells the ranks that time is running out")


def launcher(options):
    return f"launcher = \"'{TRIAL}' {{folder}} --ntasks={{ranks}} {options} -- {{command}}\"\n"


# They know one job, 41, whose program is a child of the batch script.
STAND_INS = {
    "sbatch": """
while [[ $1 == --* ]]; do
  [[ $1 == --output=* ]] && output=${1#--output=}
  shift
done
echo '41;cluster'
SLURM_JOB_ID=41 bash "$@" >>"$output" 2>&1 &
echo $! >"$STATE/41"
wait $!
code=$?
rm "$STATE/41"
exit $code""",
    "srun": 'while [[ $1 == --* ]]; do shift; done\nexec "$@"',
    "scancel": '[[ " $* " == *" --state=RUNNING --signal=USR1 41 "* ]] || exit 0\npkill -USR1 --parent "$(cat "$STATE/41")"',
    "squeue": '[[ ! -e $STATE/41 ]] || echo 41',
    "scontrol": "exit 1",
}


@case(60, processors=1)
def sweep_by_sbatch_in_short(context):
    """sbatch_trial.sh with commands that stand in for Slurm's: a job's exit code, output and stop are the trial's."""
    text = "max_parallel = 1\n" + launcher("") + '[[sweep.list]]\n"optimizer.lr" = 1e-3\n' + failing(context)
    sweep, folder = write_sweep(context, "short", text, 8, 1000)
    env = write_commands(context.folder / "bin", STAND_INS)
    gate = Gate(context, "fifth-row")
    job = start_sweep(context, [sweep], "stopped", {**env, **faults(context, gate.rule(at_row(5, name="*/trial-000*/")))})
    gate.wait(job)
    kill(job.process.pid, signal.SIGTERM)
    gate.wait(job, happened="signalled")
    gate.open()
    expect(job.wait() == 75 and "saved at step 6" in job.text(), f"no save\n{job.tail()}")
    run_sweep(context, [sweep], "resumed", exit_code=1, env=env)
    good, bad = trials_of(folder)
    expect(good["state"] == "done" and steps_trained(log_of(folder, good)) == list(range(1, 9)), f"{good}\n{log_of(folder, good)}")
    expect(bad["state"] == "failed" and WHY in bad["error"], f"{bad}")
    expect(not list(folder.glob("*/slurm-job")), "a job that has ended is still recorded")
    usage = subprocess.run([TRIAL, folder, "--ntasks=1"], capture_output=True, text=True)
    expect(usage.returncode == 2 and "usage:" in usage.stderr, f"{usage}")


@case(240, tier="long")
def slurm_requeue(context):
    """In a real Slurm, the job that gets SIGUSR1 saves and is queued again; it ends with an undisturbed run's losses."""
    with LocalSlurm(context) as slurm:
        run(context, 2, ["--config", write_job(context, "straight")], name="straight")
        gate = Gate(context, "eighth-row")
        log = context.folder / "job.log"
        words = ["sbatch", "--parsable", "--ntasks=2", f"--output={log}", SCRIPT, "--config", write_job(context, "queued"), *FULL]
        number = slurm.command(*map(str, words), env=faults(context, gate.rule(at_row(8))))
        gate.wait(slurm.daemons)
        # This is what Slurm does before the time is up.
        slurm.command("scancel", "--signal=USR1", number)
        gate.wait(slurm.daemons, happened="signalled")
        gate.open()
        wait_until(lambda: slurm.field(number, "Restarts") == "1", 60, f"it was not queued again\n{log.read_text()}")
        # Slurm lets a job wait for two minutes before it starts again.
        wait_until(lambda: slurm.field(number, "JobState") == "PENDING", 60, "the job does not wait")
        slurm.command("scontrol", "update", f"JobId={number}", "StartTime=now")
        wait_until(lambda: slurm.field(number, "JobState") == "COMPLETED", 120, f"not completed\n{log.read_text()}")
        expect("goes back into the queue" in log.read_text() and "step-9" in log.read_text(), f"it did not resume\n{log.read_text()}")
        found, straight = (rows_by_step(context.dump(name) / "metrics.jsonl", exact=True) for name in ("queued", "straight"))
        check_identical(found, straight, KEYS, "queued again")


@case(240, tier="long")
def slurm_sweep(context):
    """In a real Slurm, a sweep of two-rank trials: one fails, SIGTERM and SIGKILL in the middle, and all is resumed."""
    with LocalSlurm(context) as slurm:
        left = check_cluster_sweep(context, "nproc = 2\n" + launcher(""), slurm.env, slurm.jobs)
        expect(slurm.field(left, "JobState") == "CANCELLED", f"job {left}, which had outlived its sweep, is {slurm.field(left, 'JobState')}")


@case(120, tier="long")
def slurm_sweep_that_waits(context):
    """In a real Slurm: a trial whose job waits is taken out of the queue by SIGTERM, and is not called done or failed."""
    with LocalSlurm(context) as slurm:
        text = "max_parallel = 1\n" + launcher("--begin=now+1hour") + '[sweep.grid]\n"optimizer.lr" = [1e-3]\n'
        sweep, folder = write_sweep(context, "waiting", text, 3)
        job = start_sweep(context, [sweep], "waiting", slurm.env)
        wait_until(slurm.jobs, 30, f"no job\n{job.tail()}")
        kill(job.process.pid, signal.SIGTERM)
        expect(job.wait() == 75 and not slurm.jobs(), f"the job still waits: {slurm.jobs()}\n{job.tail()}")
        (trial,) = trials_of(folder)
        expect(trial["state"] == "pending", f"{trial}")

"""Runs a sweep whose trials are jobs of a cluster: one fails, and the sweep is stopped, killed and resumed."""
import signal

from cases_sweep import log_of, start_sweep, steps_trained, trials_of, write_sweep
from harness import Gate, at_row, expect, faults, kill, read_rows, wait_until

STEPS = 12
WHY = "is not a complete checkpoint"


def failing(context):
    """Returns the lines of a trial that fails with WHY once it runs."""
    (context.folder / "empty").mkdir()
    return f"[[sweep.list]]\n\"checkpoint.initial_load_path\" = '{context.folder / 'empty'}'\n"


def check_cluster_sweep(context, settings, env, jobs):
    """settings: lines of [sweep] with the launcher. jobs: returns the names of the cluster's waiting and running jobs.

    Returns the name of the job that outlived the killed sweep; the resumed one must have ended it.
    """
    text = "max_parallel = 2\n" + settings + '[[sweep.list]]\n"optimizer.lr" = 1e-3\n[[sweep.list]]\n"optimizer.lr" = 3e-3\n'
    text += failing(context) + '[[sweep.list]]\n"optimizer.lr" = 1e-2\n'
    sweep, folder = write_sweep(context, "cluster", text, STEPS, 4)
    stop_running_trials(context, sweep, env)
    wait_until(lambda: not jobs(), 60, "jobs outlive a sweep that was stopped")

    # A sweep that is killed cannot end its jobs; its next start does.
    gate = Gate(context, "last-trial")
    job = start_sweep(context, [sweep], "killed", {**env, **faults(context, gate.rule(at_row(2, name="*/trial-003*/")))})
    gate.wait(job)
    wait_until(lambda: trials_of(folder)[2]["state"] == "failed" and len(jobs()) == 1, 60, f"no failure\n{job.tail()}")
    kill(job.process.pid, signal.SIGKILL)
    job.process.wait()
    (left,) = jobs()
    job = start_sweep(context, [sweep], "resumed", env)
    gate.wait(job, happened="signalled")
    gate.open()
    code = job.wait(200)
    expect(code == 1, f"exit code {code}\n{job.tail(40)}")
    expect(not jobs(), f"jobs outlive the sweep: {jobs()}")
    check_trials(folder)
    return left


def stop_running_trials(context, sweep, env):
    gates = [Gate(context, f"trial-{index}") for index in range(2)]
    stops = [gate.rule(at_row(5, name=f"*/trial-00{index}*/")) for index, gate in enumerate(gates)]
    job = start_sweep(context, [sweep], "stopped", {**env, **faults(context, *stops)})
    for gate in gates:
        gate.wait(job)
    kill(job.process.pid, signal.SIGTERM)
    for gate in gates:
        gate.wait(job, happened="signalled")
        gate.open()
    expect(job.wait() == 75 and job.text().count("saved at step 6") == 2, f"no save\n{job.tail()}")


def check_trials(folder):
    trials = trials_of(folder)
    states = [trial["state"] for trial in trials]
    expect(states == ["done", "done", "failed", "done"], f"{[(t['state'], t['error']) for t in trials]}")
    expect(WHY in trials[2]["error"], f"{trials[2]}")
    for trial in trials[:2]:
        trained = steps_trained(log_of(folder, trial))
        expect(trained == list(range(1, STEPS + 1)), f"{trial['name']} trained {trained}: a step was lost or done twice")
    rows = [row["step"] for row in read_rows(folder / trials[3]["name"] / "metrics.jsonl")]
    expect(rows == list(range(1, STEPS + 1)), f"{trials[3]['name']} has the rows {rows}")
    expect(trials[3]["starts"] == 2, f"{trials[3]}")

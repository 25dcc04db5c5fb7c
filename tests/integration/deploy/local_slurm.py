"""Starts a Slurm cluster of one node on this machine, without root's services, munge or control groups."""
import getpass
import os
import shutil
import socket
import subprocess

from harness import MARK, Job, expect, free_port, skip, wait_until

# KillWait: a test that cancels a rank at a gate does not wait. config_overrides: the node has as many cores as it is
# told, so that two ranks run on any machine.
CONFIGURATION = """
ClusterName=titan-test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
SlurmctldPort={controller_port}
SlurmdPort={node_port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=4
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE
"""


class LocalSlurm:
    """Holds the two daemons, which end with the case. Use it with `with`: it ends the jobs that a failed case leaves."""

    def __init__(self, context):
        if not shutil.which("slurmctld") or not shutil.which("slurmd"):
            skip("Slurm (Debian: slurm-wlm)")
        folder = context.folder / "slurm"
        for name in ("state", "spool"):
            (folder / name).mkdir(parents=True)
        values = {"host": socket.gethostname(), "user": getpass.getuser(), "folder": folder}
        values |= {"controller_port": free_port(), "node_port": free_port()}
        configuration = folder / "slurm.conf"
        configuration.write_text(CONFIGURATION.format(**values))
        self.env = {"SLURM_CONF": str(configuration), "PATH": f"{context.program.parent}:{os.environ['PATH']}"}
        self.daemons = [Job([name, "-D"], context.folder / "logs", name, self.env) for name in ("slurmctld", "slurmd")]
        wait_until(lambda: "idle" in self.command("sinfo", "--noheader", check=False), 30, f"no node is idle\n{self.daemons[0].tail()}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.command("scancel", "--user", getpass.getuser(), check=False)
        wait_until(lambda: not self.command("squeue", "--noheader", check=False), 30, "jobs outlive scancel")

    def command(self, *words, check=True, env=None):
        """Returns what a command of Slurm prints."""
        # The mark, which a job inherits, ends it with the case.
        surroundings = {**os.environ, **self.env, MARK: self.daemons[0].mark, **(env or {})}
        done = subprocess.run(words, env=surroundings, capture_output=True, text=True)
        expect(not check or done.returncode == 0, f"{words}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout.strip()

    def jobs(self):
        """Returns {number: name} of the jobs that wait or run."""
        lines = self.command("squeue", "--noheader", "--format=%A %j").splitlines()
        return dict(line.split() for line in lines)

    def field(self, job, name):
        """Returns a field of a job that is known: JobState, Restarts, ..."""
        text = self.command("scontrol", "show", "job", job, "--oneliner")
        return dict(word.split("=", 1) for word in text.split() if "=" in word)[name]

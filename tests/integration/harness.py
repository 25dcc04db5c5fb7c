"""Shared by all integration cases: starting ranks, waiting for them, ending what is left, reading what they wrote."""
import dataclasses
import errno
import fcntl
import importlib
import itertools
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import time
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]
VENV = pathlib.Path(sys.executable).parent  # .venv/bin, or that of the torch that a build was made with
REFERENCE = ROOT / "tests/reference"
ANSI = re.compile(r"\x1b\[[0-9;]*m")

CASES = {}
UPDATE = False  # run.py --update: write the expected files instead of comparing with them
# Every time limit is a guard against hanging and never a verdict; a busy machine may need several times as long.
TIME_SCALE = float(os.environ.get("TITAN_TIME_SCALE", 5))


class Failure(Exception):
    """Raised if a case's expectation does not hold; the message says what was expected and what was found."""


class Skip(Exception):
    """Raised if this machine lacks what the case needs; scripts/test.sh compares the message with a list."""


@dataclasses.dataclass
class Case:
    function: object
    parameters: dict
    timeout_s: float  # quiet machine; times TIME_SCALE
    tier: str  # "integration", or the only words of scripts/test.sh that run it: "wide", "long"
    quick: bool  # also in scripts/test.sh quick
    processors: int  # how many of the machine's cores its processes keep busy; two cores' worth runs at once


def case(timeout_s, tier="integration", quick=False, wide=(), processors=2, **parameters):
    """Registers a case. `timeout_s`: of the full case. Parameter lists make a case per combination: name_value_value.

    quick: True, or the list of those values of the first parameter that are in scripts/test.sh quick.
    wide: the combinations ("value_value") of the tier "wide", whose kind the others already show.
    """

    def register(function):
        unknown = set(wide)
        for values in itertools.product(*parameters.values()):
            words = "_".join(map(str, values))
            is_quick = quick is True or (isinstance(quick, list) and values[0] in quick)
            arguments = dict(zip(parameters, values))
            name = f"{function.__name__}_{words}" if words else function.__name__
            CASES[name] = Case(function, arguments, timeout_s, "wide" if words in wide else tier, is_quick, processors)
            unknown.discard(words)
        expect(not unknown, f"{function.__name__} has no {sorted(unknown)}, which `wide` lists")
        return function

    return register


def expect(condition, message):
    if not condition:
        raise Failure(message)


def skip(what):
    """Ends the case as skipped: this machine lacks `what`."""
    raise Skip(what)


@dataclasses.dataclass
class Context:
    """The surroundings of one case."""

    program: pathlib.Path
    folder: pathlib.Path  # empty at the start of the case, removed after a case that passed
    fixtures: pathlib.Path  # corpus and tokenizer, see fixtures.py

    def dump(self, name):
        return self.folder / name


# Below the ports that the system assigns by itself (net.ipv4.ip_local_port_range), so that no connection of another
# process can take a port between the check and the program's own bind.
PORTS = range(20000, 32000)
PORT_LEASES = []  # open files; their locks end with this process


def free_port():
    """Returns a port of 127.0.0.1 that no other process of these tests gets before this one has ended."""
    folder = pathlib.Path(tempfile.gettempdir(), f"titan-test-ports-{os.getuid()}")
    folder.mkdir(exist_ok=True)
    for port in random.sample(PORTS, len(PORTS)):
        lease = open(folder / str(port), "w")
        try:
            fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as listener:
                listener.bind(("127.0.0.1", port))
        except OSError as error:
            lease.close()
            expect(error.errno in (errno.EAGAIN, errno.EADDRINUSE), f"port {port}: {error}")
            continue
        PORT_LEASES.append(lease)
        return port
    raise Failure(f"no free port in {PORTS}")


# ---------------------------------------------------------------------------------------------------- processes


# Set for every process of a job and inherited by all that it starts, so that ranks are found (and ended) even if
# their launcher is gone.
MARK = "TITAN_INTEGRATION_JOB"


def processes_marked(mark):
    return [int(e) for e in os.listdir("/proc") if e.isdigit() and environment_of(e).get(MARK) == mark and is_alive(e)]


def state_of(pid):
    """Returns the letter of /proc/PID/stat; X if there is no such process."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def is_alive(pid):
    return state_of(pid) not in "ZX"


def kill(pid, number):
    """Sends a signal to a process that this one started; it may have ended meanwhile."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def stop_process(pid):
    """Sends SIGSTOP and waits until the process has stopped: before, it would still take a later signal."""
    kill(pid, signal.SIGSTOP)
    wait_until(lambda: state_of(pid) == "T", 30, f"process {pid} did not stop")


def environment_of(pid):
    try:
        pairs = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    return dict(pair.decode(errors="replace").split("=", 1) for pair in pairs if b"=" in pair)


JOBS = []  # all that this process started


def end_all_jobs():
    for job in JOBS:
        job.end()


class Job:
    """A started command (a rank, or a launcher with its ranks) whose output goes to files, so that nothing blocks.

    terminal: the inner end of a pseudo-terminal, which becomes the command's own and takes the output instead.
    """

    def __init__(self, command, folder, name, env=None, cwd=None, terminal=None):
        folder.mkdir(parents=True, exist_ok=True)
        self.command = [str(word) for word in command]
        self.out_path, self.err_path = folder / f"{name}.out", folder / f"{name}.err"
        # Ranks share the machine's cores: one thread each, as torchrun sets it.
        self.mark = uuid.uuid4().hex
        environment = {**os.environ, "OMP_NUM_THREADS": "1", MARK: self.mark, **(env or {})}
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            self.process = subprocess.Popen(
                self.command,
                stdin=terminal or subprocess.DEVNULL,
                stdout=terminal or out,
                stderr=terminal or err,
                env=environment,
                cwd=cwd or folder,
                start_new_session=True,
                preexec_fn=terminal and (lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)),
            )
        JOBS.append(self)

    def wait(self, timeout_s=60):
        """Returns the exit code. Ends the command and all that it started after TIME_SCALE times `timeout_s`."""
        limit_s = timeout_s * TIME_SCALE
        try:
            code = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.end()
            raise Failure(f"still running after {limit_s:.0f} s: {' '.join(self.command)}\n{self.tail()}") from None
        return code

    def end(self):
        """Ends the rest of this job, by pid: SIGTERM lets a launcher end its ranks, SIGKILL ends what remains."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(3)
            except subprocess.TimeoutExpired:
                pass
        for pid in processes_marked(self.mark):
            kill(pid, signal.SIGKILL)
        self.process.wait()

    def ranks(self, program):
        """Returns {rank: pid} of the job's processes that run `program`."""
        found = {}
        for pid in processes_marked(self.mark):
            try:
                same = os.path.samefile(f"/proc/{pid}/exe", program)
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            except OSError:
                continue  # it ended meanwhile
            is_launcher = any(word == "--nproc" or word.startswith("--nproc=") for word in words)
            if same and not is_launcher:
                env = environment_of(pid)
                found[int(env.get("RANK", env.get("OMPI_COMM_WORLD_RANK", 0)))] = pid
        return found

    def text(self):
        return ANSI.sub("", (self.out_path.read_bytes() + self.err_path.read_bytes()).decode(errors="replace"))

    def errors(self):
        return ANSI.sub("", self.err_path.read_bytes().decode(errors="replace"))

    def tail(self, lines=15):
        return "\n".join("    | " + line for line in self.text().splitlines()[-lines:])


def launcher_words(launcher, ranks):
    if launcher == "torchrun":
        return [VENV / "torchrun", "--no-python", "--nproc-per-node", ranks, "--master-port", free_port()]
    if launcher == "mpirun":
        return ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", ranks]
    if launcher in ("none", "nproc"):
        return []
    raise ValueError(launcher)


def start(context, ranks, words, launcher=None, name="run", env=None, terminal=None):
    """Starts the program under a launcher (default: none at one rank, its own --nproc above)."""
    launcher = launcher or ("none" if ranks == 1 else "nproc")
    own = ["--nproc", ranks] if launcher == "nproc" else []
    command = [*launcher_words(launcher, ranks), context.program, *own, *words]
    return Job(command, context.folder / "logs", name, env, terminal=terminal)


def has_module(python, module):
    """True if a Python can import a module; False if there is no such program."""
    command = [python, "-c", f"import importlib.util as u; raise SystemExit(u.find_spec({module!r}) is None)"]
    return shutil.which(python) is not None and subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0


def peer_python(module):
    """Returns a Python with a peer program: $TITAN_PEER_PYTHON or .venv's. Skips the case if there is none."""
    for python in (os.environ.get("TITAN_PEER_PYTHON"), VENV / "python"):
        if python and has_module(python, module):
            return python
    return skip(f"a Python with {module} (set TITAN_PEER_PYTHON)")


def start_plain(context, ranks, words, cwd=None, variables=None):
    """Starts the ranks with torchrun's variables, without a launcher. cwd: {rank: folder}, variables: {rank: dict}."""
    env = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return [
        Job(
            [context.program, *words],
            context.folder / "logs",
            f"rank{rank}",
            {**env, "RANK": str(rank), "LOCAL_RANK": str(rank), **(variables or {}).get(rank, {})},
            (cwd or {}).get(rank),
        )
        for rank in range(ranks)
    ]


def run(context, ranks, words, launcher=None, name="run", timeout_s=60, exit_code=0, env=None):
    """Runs the program to its end and checks the exit code."""
    job = start(context, ranks, words, launcher, name, env)
    code = job.wait(timeout_s)
    expect(code == exit_code, f"exit code {code}, expected {exit_code}: {' '.join(job.command)}\n{job.tail()}")
    return job


def wait_until(condition, timeout_s, what):
    """Polls until `condition` returns something true, and returns it. The limit is a guard, as in Job.wait."""
    deadline = time.monotonic() + timeout_s * TIME_SCALE
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise Failure(f"after {timeout_s * TIME_SCALE:.0f} s: {what}")


class cpu_seconds:
    """Counts seconds of processor time of all processes that ended and were waited for within the block: `with ... as
    spent`, then spent.seconds. Unlike wall time, it hardly depends on other work on the machine."""

    def __enter__(self):
        self.seconds = None
        self.before = self.now()
        return self

    def __exit__(self, *_):
        self.seconds = self.now() - self.before

    @staticmethod
    def now():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime


# ---------------------------------------------------------------------------------------------------- faults


def faults(context, *rules):
    """Returns variables for a job in which something happens at a named call; tests/support/fault.cpp has the rules."""
    return {"LD_PRELOAD": str(file_of_build(context, "libtitan_fault.so")), "TITAN_FAULT": "; ".join(rules)}


def file_of_build(context, name):
    """Returns a file beside the program; skips the case if that is not in a build folder but installed."""
    path = context.program.parent / name
    if not (context.program.parent / "CMakeCache.txt").exists():
        skip("a program in its build folder")
    expect(path.exists(), f"{path} was not built")
    return path


class Gate:
    """A place where a rank waits until it is released: put gate.rule(...) among a job's faults."""

    def __init__(self, context, name):
        self.path = context.folder / f"gate-{name}"

    def rule(self, where):
        """Returns the rule. `where`: rank, call, path and n of the call after which to wait."""
        return f"{where} do=gate:{self.path} once={self.path}.once"

    def wait(self, job, timeout_s=60, happened="reached"):
        """Waits until the rank is at the gate. Fails if `job` (or each of a list of jobs) ends instead.

        happened="signalled": waits until it has been there and a signal has come to it.
        """
        file = self.path.with_name(f"{self.path.name}.{happened}")
        jobs = job if isinstance(job, list) else [job]

        def has_happened():
            if file.exists():
                return True
            ended = [each for each in jobs if each.process.poll() is not None]
            expect(len(ended) < len(jobs), f"ended before {self.path.name} was {happened}\n{jobs[0].tail(30)}")
            return False

        wait_until(has_happened, timeout_s, f"{self.path.name} was not {happened}\n{jobs[0].tail(30)}")

    def open(self):
        self.path.with_name(self.path.name + ".go").touch()

    def signal(self, context, job, number=signal.SIGTERM):
        """Waits, sends every rank of `job` the signal, and opens: ranks have it before the waiting one continues."""
        self.wait(job)
        for pid in job.ranks(context.program).values():
            kill(pid, number)
        self.open()


def at_row(step, rank=0, name="*"):
    """Returns a rule for the moment when `rank` has written the row of `step` (log_freq 1, no validation)."""
    return f"rank={rank} call=write path={name}metrics.jsonl n={step}"


# ---------------------------------------------------------------------------------------------------- results


def read_rows(path, exact=False):
    """Returns the objects of a metrics.jsonl. exact: numbers stay the text that they are in the file."""
    convert = {"parse_float": str, "parse_int": str} if exact else {}
    path = pathlib.Path(path)
    expect(path.exists(), f"{path} was not written")
    # A line that is still being written has no newline yet.
    lines = path.read_text().rpartition("\n")[0].splitlines()
    return [json.loads(line, **convert) for line in lines]


def rows_by_step(path, exact=False):
    """Returns {step: row}. For a step that was trained again after a resume, the last row counts."""
    return {int(row["step"]): row for row in read_rows(path, exact)}


def relative_distance(a, b):
    return abs(a - b) / max(abs(a), abs(b), 1e-30)


def check_close(found, expected, keys, tolerance, what):
    """Checks that both runs have the same steps, and that every key differs by at most `tolerance`, relatively.

    tolerance: a number, or a function (index of the row, key) -> number.
    """
    steps = [row["step"] for row in expected]
    expect([row["step"] for row in found] == steps, f"{what}: steps {[r['step'] for r in found]}, expected {steps}")
    limit = tolerance if callable(tolerance) else lambda index, key: tolerance
    for index, (mine, theirs) in enumerate(zip(found, expected)):
        for key in keys:
            distance = relative_distance(mine[key], theirs[key])
            # "not <=" so that NaN is a failure.
            if not distance <= limit(index, key):
                raise Failure(
                    f"{what}: step {mine['step']}: {key} is {mine[key]!r}, expected {theirs[key]!r}: "
                    f"relative distance {distance:.2e}, allowed {limit(index, key):.2e}"
                )


def check_identical(found, expected, keys, what):
    """Checks that both {step: row} tables (read with exact=True) have the same steps and texts for every key."""
    expect(sorted(found) == sorted(expected), f"{what}: steps {sorted(found)}, expected {sorted(expected)}")
    for step in sorted(expected):
        for key in keys:
            mine, theirs = found[step].get(key), expected[step].get(key)
            expect(mine is not None and mine == theirs, f"{what}: step {step}: {key} is {mine}, expected {theirs}")


def import_reference(*names):
    """Imports modules of the reference, by default init_weights and job. They load torch, which takes seconds, so only
    cases that need them call this."""
    if str(REFERENCE) not in sys.path:
        sys.path.insert(0, str(REFERENCE))
    return [importlib.import_module(name) for name in names or ("init_weights", "job")]

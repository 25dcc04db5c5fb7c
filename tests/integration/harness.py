"""What every integration case uses: starting ranks, waiting for them, ending what is left, reading what they wrote."""
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv/bin"
REFERENCE = ROOT / "tests/reference"
ANSI = re.compile(r"\x1b\[[0-9;]*m")

CASES = {}
UPDATE = False  # run.py --update: write down what is expected instead of comparing with it


class Failure(Exception):
    """A case's expectation does not hold; the message says what was expected and what was found."""


def case(timeout_s, **parameters):
    """Registers a case. `timeout_s` is for the whole case; parameter lists make one case a value: name_value."""

    def register(function):
        name = function.__name__
        if not parameters:
            CASES[name] = (function, {}, timeout_s)
        for key, values in parameters.items():
            for value in values:
                CASES[f"{name}_{value}"] = (function, {key: value}, timeout_s)
        return function

    return register


def expect(condition, message):
    if not condition:
        raise Failure(message)


@dataclasses.dataclass
class Context:
    """One case's surroundings."""

    program: pathlib.Path
    folder: pathlib.Path  # empty at the start of the case, removed after a case that passed
    fixtures: pathlib.Path  # corpus and tokenizer, see fixtures.py

    def dump(self, name):
        return self.folder / name


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


# ---------------------------------------------------------------------------------------------------- processes


# Set for every process of a job and inherited by all that it starts, so that ranks are found (and ended) even when
# their launcher is gone.
MARK = "TITAN_INTEGRATION_JOB"


def processes_marked(mark):
    return [int(e) for e in os.listdir("/proc") if e.isdigit() and environment_of(e).get(MARK) == mark and is_alive(e)]


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def kill(pid, number):
    """Sends a signal to a process that this one started; it may have ended meanwhile."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


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
    """A started command (a rank, or a launcher with its ranks) whose output goes to files, so that nothing blocks."""

    def __init__(self, command, folder, name, env=None, cwd=None):
        folder.mkdir(parents=True, exist_ok=True)
        self.command = [str(word) for word in command]
        self.out_path, self.err_path = folder / f"{name}.out", folder / f"{name}.err"
        # Ranks share the machine's cores: one thread each, as torchrun sets it.
        self.mark = uuid.uuid4().hex
        environment = {**os.environ, "OMP_NUM_THREADS": "1", MARK: self.mark, **(env or {})}
        self.started = time.monotonic()
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment,
                cwd=cwd or folder,
                start_new_session=True,
            )
        JOBS.append(self)

    def wait(self, timeout_s):
        """The exit code. Ends the command and everything it started when the time is up."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.end()
            raise Failure(f"still running after {timeout_s:.0f} s: {' '.join(self.command)}\n{self.tail()}") from None
        self.seconds = time.monotonic() - self.started
        return code

    def end(self):
        """Ends what is left of this job, by pid: SIGTERM lets a launcher end its ranks, SIGKILL ends the rest."""
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
        """rank -> pid of the job's processes that run `program`."""
        found = {}
        for pid in processes_marked(self.mark):
            try:
                same = os.path.samefile(f"/proc/{pid}/exe", program)
            except OSError:
                continue  # it ended meanwhile
            if same:
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
    if launcher == "none":
        return []
    raise ValueError(launcher)


def start(context, ranks, words, launcher=None, name="run", env=None):
    """Starts the program under a launcher (default: none at one rank, torchrun above)."""
    launcher = launcher or ("none" if ranks == 1 else "torchrun")
    return Job([*launcher_words(launcher, ranks), context.program, *words], context.folder / "logs", name, env)


def has_module(python, module):
    """Whether a Python can import a module; False where there is no such program."""
    command = [python, "-c", f"import importlib.util as u; raise SystemExit(u.find_spec({module!r}) is None)"]
    return shutil.which(python) is not None and subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0


def peer_python(module):
    """A Python with a program to compare with: $TITAN_PEER_PYTHON or .venv's. Says so and gives None when there is none."""
    for python in (os.environ.get("TITAN_PEER_PYTHON"), VENV / "python"):
        if python and has_module(python, module):
            return python
    print(f"       left out: no Python with {module} (set TITAN_PEER_PYTHON)", flush=True)
    return None


def start_plain(context, ranks, words, cwd=None, variables=None):
    """Starts the ranks one by one with torchrun's variables, no launcher over them. rank -> folder, rank -> variables."""
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


def run(context, ranks, words, launcher=None, name="run", timeout_s=60, exit_code=0):
    """Runs the program to its end and checks the exit code."""
    job = start(context, ranks, words, launcher, name)
    code = job.wait(timeout_s)
    expect(code == exit_code, f"exit code {code}, expected {exit_code}: {' '.join(job.command)}\n{job.tail()}")
    return job


def run_reference(context, ranks, words, name="reference", timeout_s=120):
    """Runs the PyTorch reference; its rows. The job's keys are the program's."""
    output = context.folder / f"{name}.jsonl"
    command = [VENV / "torchrun", "--nproc-per-node", ranks, "--master-port", free_port()]
    command += [REFERENCE / "llama_fsdp2.py", "--output", output, *words]
    job = Job(command, context.folder / "logs", name)
    code = job.wait(timeout_s)
    expect(code == 0, f"the reference failed with {code}\n{job.tail(30)}")
    return read_rows(output)


def wait_until(condition, timeout_s, what):
    """Polls until `condition` returns something true, and returns it."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise Failure(f"after {timeout_s} s: {what}")


# ---------------------------------------------------------------------------------------------------- results


def read_rows(path, exact=False):
    """The objects of a metrics.jsonl. exact: numbers stay the text that they are in the file."""
    convert = {"parse_float": str, "parse_int": str} if exact else {}
    path = pathlib.Path(path)
    expect(path.exists(), f"{path} was not written")
    # A line that is still being written has no newline yet.
    lines = path.read_text().rpartition("\n")[0].splitlines()
    return [json.loads(line, **convert) for line in lines]


def rows_by_step(path, exact=False):
    """step -> row. A step that was trained again after a resume counts with its last row."""
    return {int(row["step"]): row for row in read_rows(path, exact)}


def relative_distance(a, b):
    return abs(a - b) / max(abs(a), abs(b), 1e-30)


def check_close(found, expected, keys, tolerance, what):
    """Both runs have the same steps, and in every step every key differs by `tolerance` at most, relatively.

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
    """Both step -> row tables (read with exact=True) have the same steps, and the same text for every key."""
    expect(sorted(found) == sorted(expected), f"{what}: steps {sorted(found)}, expected {sorted(expected)}")
    for step in sorted(expected):
        for key in keys:
            mine, theirs = found[step].get(key), expected[step].get(key)
            expect(mine is not None and mine == theirs, f"{what}: step {step}: {key} is {mine}, expected {theirs}")


def import_reference():
    """The reference's modules (they load torch, which takes seconds, so only cases that need them ask)."""
    if str(REFERENCE) not in sys.path:
        sys.path.insert(0, str(REFERENCE))
    import init_weights
    import job

    return init_weights, job

"""The faults that a soak puts on a run, a row each.

A fault is a function of a Start that sets what happens in it: rules of tests/support/fault.cpp, an edit of files before
the start, a deed while it runs. It also sets the exit codes that are right. A start that its fault does not end is
stopped by SIGTERM, and saves.
"""
import pathlib
import signal

from checkpoint_tools import read_state, steps_of
from harness import faults, kill, read_rows, state_of, wait_until

SAVED, PEER_FAILED, FAILED = 75, 3, 1
HANG_LIMIT_S = 4
HANG_START_LIMIT_S = 60  # of the start, and of saves in the background
FLIPPED = "layers.0.attention.wo.weight"
FLIPPED_BYTES = 256


class Start:
    """One start of the run, before and while it runs."""

    def __init__(self, soak, mesh):
        self.soak, self.mesh, self.draw = soak, mesh, soak.draw
        self.rank = self.draw.randrange(mesh.ranks)  # the one that the fault is of
        self.rules, self.variables = [], {}
        self.limits_s = None  # of the start and of a step, where a rank hangs
        self.row = self.draw.randrange(1, 12)  # the deed comes after so many rows of this start
        self.deed = None
        self.codes, self.is_ended = {SAVED}, False  # is_ended: the fault itself ends it
        self.is_wrong = False  # its rows are of changed bits
        self.damaged = None  # the checkpoint that was damaged before it
        self.job = None

    def where(self, calls, folder=None):
        """Begins a rule of the rank's calls in a folder (null: the one of the checkpoints)."""
        return f"rank={self.rank} call={calls} path={folder or self.soak.checkpoints}/*"

    def ends_with(self, *codes):
        self.codes, self.is_ended = set(codes), True

    def environment(self):
        return (faults(self.soak.context, *self.rules) if self.rules else {}) | self.variables

    def signal_launcher(self, number):
        kill(self.job.process.pid, number)

    def signal_rank(self, number):
        """Does nothing if the rank has ended. Returns its process, or None."""
        pid = self.job.ranks(self.soak.context.program).get(self.rank)
        if pid is not None:
            kill(pid, number)
        return pid


def newest_step(folder):
    """Returns the step of the newest checkpoint in a folder; 0 if there is none."""
    return max(steps_of(folder), default=0)


def newest_state(soak):
    """Returns the folder that a start loads: a copy in memory if it is of a later step than every checkpoint."""
    base = max([soak.checkpoints, *soak.copies.iterdir()], key=newest_step)
    return base / f"step-{newest_step(base)}"


FAULTS = {}


def fault(name, needs=lambda soak, mesh: True):
    """Registers a fault under a name for schedules. `needs`: whether it can happen at this point of the run."""

    def register(function):
        FAULTS[name] = (function, needs)
        return function

    return register


def has_checkpoints(count):
    return lambda soak, mesh: len(steps_of(soak.checkpoints)) >= count


# ---------------------------------------------------------------------------------------------------- processes


@fault("kill_rank")
def kill_rank(start):
    """A rank is killed between two steps or in one."""
    start.deed = lambda: start.signal_rank(signal.SIGKILL)
    start.ends_with(137)


@fault("kill_launcher")
def kill_launcher(start):
    """The launcher is killed; no rank outlives it."""
    start.deed = lambda: start.signal_launcher(signal.SIGKILL)
    start.ends_with(137)


@fault("kill_in_save")
def kill_in_save(start):
    """A rank is killed before one of the calls of a save."""
    start.rules = [start.where("write+fsync+rename+unlink+mkdir+open") + f" n={start.draw.randrange(1, 40)} do=kill"]
    start.ends_with(137)


@fault("kill_in_load", has_checkpoints(1))
def kill_in_load(start):
    """A rank is killed while it reads the state."""
    start.rules = [start.where("read+open_read", newest_state(start.soak)) + f" n={start.draw.randrange(1, 5)} do=kill"]
    start.ends_with(137)


@fault("exit_zero", lambda soak, mesh: mesh.ranks > 1)
def exit_zero(start):
    """A library ends a rank in the middle of a save, with the code of a success."""
    start.rules = [start.where("fsync") + f" n={start.draw.randrange(1, 6)} do=_exit:0"]
    start.ends_with(PEER_FAILED)


@fault("exit_seven")
def exit_seven(start):
    """The same with a code that the program does not have."""
    start.rules = [start.where("fsync") + f" n={start.draw.randrange(1, 6)} do=_exit:7"]
    start.ends_with(7)


@fault("hang", lambda soak, mesh: mesh.ranks > 1)
def hang(start):
    """A rank stops for good; the others end after their time limit and name it."""
    start.limits_s = HANG_START_LIMIT_S, HANG_LIMIT_S
    start.deed = lambda: start.signal_rank(signal.SIGSTOP)
    start.ends_with(PEER_FAILED)


@fault("pause")
def pause(start):
    """A rank stands still for a moment, and the run goes on."""

    def deed():
        pid = start.signal_rank(signal.SIGSTOP)
        if pid is not None:
            wait_until(lambda: state_of(pid) in "TXZ", 30, f"process {pid} did not stop")
            kill(pid, signal.SIGCONT)

    start.deed = deed


# ---------------------------------------------------------------------------------------------------- signals


def stop_by(number):
    def stop(start):
        """Signals the launcher, which passes it on, or one rank alone."""
        to = start.draw.choice([start.signal_launcher, start.signal_rank])
        start.deed = lambda: to(number)
        start.ends_with(SAVED)

    return stop


for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):
    fault(number.name.lower())(stop_by(number))


@fault("sigterm_twice")
def sigterm_twice(start):
    """The second signal ends at once, or comes after the save."""

    def deed():
        start.signal_launcher(signal.SIGTERM)
        start.signal_rank(signal.SIGTERM)

    start.deed = deed
    start.ends_with(SAVED, 143)


# ---------------------------------------------------------------------------------------------------- storage


def save_fails(number):
    def fail(start):
        call = start.draw.choice(["write", "fsync", "rename"])
        if call == "rename":
            start.rank = 0  # the other ranks rename nothing
        start.rules = [start.where(call) + f" n={start.draw.randrange(1, 12)} do=errno:{number}"]
        start.ends_with(FAILED)

    return fail


for name, number in (("disk_full", 28), ("disk_error", 5), ("quota", 122), ("read_only", 30)):
    fault(name)(save_fails(number))


@fault("read_error_once", has_checkpoints(1))
def read_error_once(start):
    """One read of the state fails and succeeds when it is tried again."""
    number = start.draw.choice([5, 116])  # EIO, ESTALE
    start.rules = [start.where("read", newest_state(start.soak)) + f" n={start.draw.randrange(1, 4)} times=1 do=errno:{number}"]


def victim_file(start):
    start.damaged = start.soak.checkpoints / f"step-{newest_step(start.soak.checkpoints)}"
    return start.draw.choice(sorted(path for path in start.damaged.iterdir() if path.stat().st_size))


@fault("damage_flip", has_checkpoints(2))
def damage_flip(start):
    """A byte of the newest checkpoint changes on the disk."""
    path = victim_file(start)
    data = bytearray(path.read_bytes())
    data[start.draw.randrange(len(data))] ^= 1 << start.draw.randrange(8)
    path.write_bytes(data)


@fault("damage_cut", has_checkpoints(2))
def damage_cut(start):
    """The end of a file of the newest checkpoint is lost."""
    path = victim_file(start)
    path.write_bytes(path.read_bytes()[: start.draw.randrange(path.stat().st_size)])


@fault("damage_remove", has_checkpoints(2))
def damage_remove(start):
    """A file of the newest checkpoint is lost."""
    path = victim_file(start)
    path.unlink()


def last_row(soak):
    rows = read_rows(soak.metrics) if soak.metrics.exists() else []
    return rows[-1]["step"] if rows else 0


@fault("torn_row", lambda soak, mesh: last_row(soak) > newest_step(soak.checkpoints) > 0)
def torn_row(start):
    """The last row of metrics.jsonl, of a step after the newest checkpoint, is cut, as by a machine without power.

    The copies in that machine's memory are lost with it, so a checkpoint must be there: the mesh may be another one, and
    a run may begin anew only on its own. A killed process loses no row of a step that it has copied: the row is written
    first.
    """
    start.soak.lose_copies()
    data = start.soak.metrics.read_bytes()
    last = data.rstrip(b"\n").rpartition(b"\n")[2]
    start.soak.metrics.write_bytes(data[: len(data) - start.draw.randrange(1, len(last) + 1)])


@fault("left_over_save")
def left_over_save(start):
    """A save that died has left its folder."""
    folder = pathlib.Path(start.soak.checkpoints, f"step-{newest_step(start.soak.checkpoints) + 1}.tmp")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__0_0.distcp").write_bytes(b"torn")


# ---------------------------------------------------------------------------------------------------- memory


@fault("flip_in_memory", lambda soak, mesh: mesh.copies and has_checkpoints(1)(soak, mesh))
def flip_in_memory(start):
    """A bit of a weight changes in the memory of rank 0, which has copies elsewhere: found before the next save."""
    pattern = start.soak.context.folder / "pattern"
    pattern.write_bytes(read_state(newest_state(start.soak))[FLIPPED].numpy().tobytes()[:FLIPPED_BYTES])
    start.rules = [f"rank=0 call=open path=*/logs/rank_0.log do=flip:{pattern}"]
    start.variables = {"TITAN_HOST_ARENA": "0"}
    start.is_wrong = True
    start.ends_with(PEER_FAILED)


def possible(soak, mesh):
    """Returns the names of the faults that can happen now."""
    return [name for name, (_, needs) in FAULTS.items() if needs(soak, mesh)]

"""Tests runs that are killed with SIGKILL, mostly while they save, and restarted until all rows are there."""
import os
import random
import signal
import time

from cases_failure import check_reason
from checkpoint_tools import SAVE, check_intact, steps_of
from fixtures import write_job
from harness import (
    Failure, case, check_identical, expect, faults, kill, read_rows, rows_by_step, start_plain,
)  # fmt: skip

KEYS = ("loss", "max_loss", "grad_norm", "lr", "tokens_seen")
ENDLESS = 1_000_000
# The smallest possible model: nearly all of a life is startup and saves.
TINY = ["--model.args.dim", 16, "--model.args.n_layers", 1, "--model.args.n_heads", 2, "--model.args.n_kv_heads", 1]
TINY += ["--model.args.multiple_of", 16, "--training.seq_len", 16, "--training.local_batch_size", 1]
TINY += ["--lr_scheduler.warmup_steps", 50, "--lr_scheduler.total_steps", ENDLESS, "--debug.deterministic"]
# A survivor is told of a death; a survivor that only a time limit would end is treated as hanging.
TINY += ["--comm.init_timeout_seconds", 100_000, "--comm.train_timeout_seconds", 100_000]
# One save in the middle of a run: of step 3, after those of steps 1 and 2; it removes the first of them.
STEPS, SAVED = 5, 3


def run_ranks(context, words, variables=None):
    """Runs the ranks to their end. Returns their jobs."""
    jobs = start_plain(context, 2, words, variables=variables)
    for rank, job in enumerate(jobs):
        code = job.wait(60)
        expect(code == 0, f"rank {rank} exited with {code}\n{job.tail(30)}")
    return jobs


class Save:
    """The save of step 3 as calls on the checkpoint folder, and runs that are killed before one of them."""

    def __init__(self, context, mode):
        self.context, self.mode = context, mode
        logs = {rank: context.folder / f"calls.rank{rank}" for rank in (0, 1)}
        rules = [f"{self.where('straight', rank)} do=log:{log}" for rank, log in logs.items()]
        run_ranks(context, self.words("straight"), {rank: faults(context, *rules) for rank in logs})
        self.expected = self.rows("straight")
        self.calls, self.first = {}, {}  # rank -> its calls of this save; the number of the first of them
        for rank, log in logs.items():
            lines = log.read_text().splitlines()
            begins = [next(i for i, line in enumerate(lines) if f"/step-{step}.tmp" in line) for step in (SAVED, SAVED + 1)]
            self.calls[rank], self.first[rank] = lines[slice(*begins)], begins[0] + 1

    def folder(self, name):
        return self.context.dump(name) / "checkpoint"

    def where(self, name, rank):
        return f"rank={rank} path={self.folder(name)}*"

    def words(self, name):
        save = ["--checkpoint.interval", 1, "--checkpoint.keep_latest_k", 2, "--checkpoint.async_mode", self.mode]
        return ["--config", write_job(self.context, name, steps=STEPS), *TINY, *SAVE, *save]

    def rows(self, name):
        return rows_by_step(self.context.dump(name) / "metrics.jsonl", exact=True)

    def position(self, call, of):
        """Returns the index, in rank 0's part of the save, of the call that acts on `of`."""
        found = [i for i, line in enumerate(self.calls[0]) if line.startswith(call + " ") and line.endswith("/" + of)]
        expect(len(found) == 1, f"'{call} …/{of}' is {len(found)} times in {self.calls[0]}")
        return found[0]

    def points(self, first, stride):
        """Returns (rank, index) of every `stride`-th call of both ranks, and always of those around the commit."""
        commit = self.position("rename", f"step-{SAVED}.tmp")
        around = {(0, self.position("rename", ".metadata.tmp")), (0, commit), (0, commit + 1)}
        every = [(rank, i) for rank in (1, 0) for i in range(len(self.calls[rank]))]
        return sorted(around | set(every[first::stride]))

    def complete_before(self, rank, position):
        """Returns the steps whose checkpoints are complete if `rank` dies before that call."""
        if rank == 1 or position <= self.position("rename", f"step-{SAVED}.tmp"):
            return [SAVED - 2, SAVED - 1]
        if position <= self.position("rename", f"step-{SAVED - 2}"):
            return [SAVED - 2, SAVED - 1, SAVED]
        return [SAVED - 1, SAVED]

    def die_and_go_on(self, rank, position):
        name = f"rank{rank}-call{position}"
        complete = self.complete_before(rank, position)
        self.die(name, rank, self.first[rank] + position)
        steps = steps_of(self.folder(name))
        expect(steps == complete, f"complete are the checkpoints of steps {steps}, expected {complete}")
        for step in complete:
            check_intact(self.folder(name) / f"step-{step}")
        self.go_on(name, complete[-1])

    def die(self, name, victim, number):
        fault = faults(self.context, f"{self.where(name, victim)} n={number} do=kill")
        jobs = start_plain(self.context, 2, self.words(name), variables={victim: fault})
        codes = [job.wait(60) for job in jobs]
        survivor = jobs[1 - victim]
        expect(codes[victim] == -signal.SIGKILL, f"rank {victim} was to be killed, it exited with {codes[victim]}")
        expect(codes[1 - victim] == 3, f"the other rank exited with {codes[1 - victim]}, expected 3\n{survivor.tail()}")
        check_reason(survivor.text(), rf"(?i)rank {victim}\b")
        rows = self.rows(name)
        # A background save that waits for a dead rank may overlap one step; the next save waits for this one.
        expect(max(rows) in ([SAVED] if self.mode == "disabled" else [SAVED, SAVED + 1]), f"rows of steps {sorted(rows)}")
        check_identical(rows, {step: self.expected[step] for step in range(1, max(rows) + 1)}, KEYS, "before the kill")

    def go_on(self, name, newest):
        jobs = run_ranks(self.context, self.words(name))
        loaded = f"from {self.folder(name)}/step-{newest}\n"
        expect(loaded in jobs[0].text(), f"it did not go on {loaded}{jobs[0].tail()}")
        check_identical(self.rows(name), self.expected, KEYS, "after the kill")
        # The last save removes no older one, and nothing is left of the save that died.
        names = sorted(os.listdir(self.folder(name)))
        expect(names == ["step-3", "step-4", "step-5"], f"the folder holds {names}")
        for each in names:
            check_intact(self.folder(name) / each)


def check_points(context, mode, first, stride):
    save = Save(context, mode)
    points = save.points(first, stride)
    for rank, position in points:
        try:
            save.die_and_go_on(rank, position)
        except Failure as failure:
            raise Failure(f"rank {rank}, killed before '{save.calls[rank][position]}': {failure}") from failure
    print(f"       {len(points)} of {sum(map(len, save.calls.values()))} calls of a save", flush=True)


@case(90, mode=["disabled", "async"], wide=["disabled"])
def rank_dies_while_saving(context, mode):
    """A rank is killed before one of the calls of a save: the other exits 3 and names it, the complete checkpoints are
    known and intact, and the next run resumes from the newest of them with the rows of an undisturbed run."""
    check_points(context, mode, first=["async", "disabled"].index(mode), stride=8)


@case(600, tier="long", mode=["disabled", "async"])
def rank_dies_in_every_call_of_a_save(context, mode):
    """Like rank_dies_while_saving, before each of the calls."""
    check_points(context, mode, first=0, stride=1)


class Lives:
    """One run at two ranks that is killed and restarted many times."""

    def __init__(self, context, seed):
        self.context = context
        self.draw = random.Random(seed)
        self.config = write_job(context, "killed", steps=ENDLESS)
        self.checkpoints = context.dump("killed") / "checkpoint"
        self.metrics = context.dump("killed") / "metrics.jsonl"
        self.rows = []  # (life, step, row) of every row that was ever written
        self.checked = set()  # (step, inode) of the folders that were found intact
        self.during_a_save = 0

    def words(self, mode, interval):
        save = ["--checkpoint.interval", interval, "--checkpoint.keep_latest_k", 2, "--checkpoint.async_mode", mode]
        return ["--config", self.config, *TINY, *SAVE, *save]

    def save_under_way(self):
        try:
            return any(name.endswith(".tmp") for name in os.listdir(self.checkpoints))
        except FileNotFoundError:
            return False

    def wait_for_moment(self, jobs, newest):
        """Waits for some point of a save of this life (three times of four), or just for some time."""
        aim_at_save = self.draw.random() < 0.75
        if not aim_at_save:
            # From startup, before anything was loaded, to some dozen steps into the run.
            time.sleep(self.draw.uniform(0.1, 2.5))
            return
        skip = self.draw.randrange(6)
        self.wait_for(jobs, lambda: steps_of(self.checkpoints)[-1:] > [newest + skip], 0.002)
        self.wait_for(jobs, self.save_under_way, 0.0005)
        time.sleep(self.draw.choice([0, self.draw.uniform(0, 0.005), self.draw.uniform(0, 0.03)]))

    def wait_for(self, jobs, condition, pause_s):
        # wait_until polls too rarely for a moment within a save.
        while not condition():
            self.expect_alive(jobs)
            time.sleep(pause_s)

    def expect_alive(self, jobs):
        for rank, job in enumerate(jobs):
            code = job.process.poll()
            expect(code is None, f"rank {rank} ended by itself with {code}\n{job.tail(30)}")

    def live_and_die(self, life):
        newest = (steps_of(self.checkpoints) or [0])[-1]
        mode = ("disabled", "async")[life % 2]
        jobs = start_plain(self.context, 2, self.words(mode, self.draw.choice([1, 2])))
        self.wait_for_moment(jobs, newest)
        self.expect_alive(jobs)
        victims = self.draw.choice([jobs, jobs[:1], jobs[1:]])
        if "step:" not in jobs[0].text():
            # Before ranks have met, a rank that died cannot be told from one that has not started yet.
            victims = jobs
        self.during_a_save += self.save_under_way()
        for job in victims:
            kill(job.process.pid, signal.SIGKILL)
        for job in jobs:
            code = job.wait(60)
            expect(job in victims or code == 3, f"life {life}: the survivor exited with {code}, expected 3\n{job.tail()}")
        self.check(life, newest)

    def check(self, life, newest_before):
        """Checks what this life left behind. Its rows follow the newest checkpoint without a gap."""
        folders = self.checkpoints.glob("step-*") if self.checkpoints.exists() else []
        for folder in folders:
            seen = (folder.name, folder.stat().st_ino)
            # No reader takes .tmp and .replaced for checkpoints.
            if folder.name[5:].isdigit() and seen not in self.checked:
                check_intact(folder)
                self.checked.add(seen)
        expect((steps_of(self.checkpoints) or [0])[-1] >= newest_before, f"life {life}: step {newest_before} was lost")
        rows = read_rows(self.metrics, exact=True) if self.metrics.exists() else []
        steps = [int(row["step"]) for row in rows]
        expect(steps == list(range(1, len(steps) + 1)), f"life {life}: the rows are of steps {steps[-40:]}")
        self.rows += [(life, int(row["step"]), row) for row in rows if int(row["step"]) > newest_before]

    def finish(self):
        """Runs a last life that ends by itself, a few steps later. Returns its last step."""
        newest = steps_of(self.checkpoints)[-1]
        run_ranks(self.context, [*self.words("async", 2), "--training.steps", newest + 5])
        return newest + 5


def undisturbed(context, steps):
    run_ranks(context, ["--config", write_job(context, "straight", steps=steps), *TINY])
    return rows_by_step(context.dump("straight") / "metrics.jsonl", exact=True)


@case(900, tier="long")
def checkpoint_kill_loop(context):
    """Kills one rank or both $TITAN_KILLS (50) times by SIGKILL, with sync and async saves: every row ever written,
    before or after a kill, is that of the undisturbed run to the last digit, and no checkpoint is torn or lost."""
    kills, seed = int(os.environ.get("TITAN_KILLS", 50)), int(os.environ.get("TITAN_KILLS_SEED", 1))
    lives = Lives(context, seed)
    for life in range(kills):
        try:
            lives.live_and_die(life)
        except Failure as failure:
            raise Failure(f"seed {seed}, life {life}: {failure}") from failure
    last = lives.finish()
    expected = undisturbed(context, max([last, *(step for _, step, _ in lives.rows)]))
    found = rows_by_step(lives.metrics, exact=True)
    check_identical(found, {step: row for step, row in expected.items() if step <= last}, KEYS, "the last life")
    for life, step, row in lives.rows:
        for key in KEYS:
            wanted = expected[step][key]
            expect(row[key] == wanted, f"seed {seed}, life {life}, step {step}: {key} is {row[key]}, undisturbed {wanted}")
    print(f"       {kills} kills, {lives.during_a_save} during a save; {len(lives.rows)} rows, {last} steps", flush=True)

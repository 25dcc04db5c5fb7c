"""Runs that are killed with SIGKILL, above all while they save, and started again until the numbers are all there."""
import os
import random
import signal
import time

from checkpoint_tools import SAVE, check_intact, steps_of
from fixtures import write_job
from harness import Failure, case, check_identical, expect, kill, read_rows, rows_by_step, start_plain

KEYS = ("loss", "max_loss", "grad_norm", "lr", "tokens_seen")
ENDLESS = 1_000_000
# The smallest model there is: nearly all of a life is start-up and saves.
TINY = ["--model.args.dim", 16, "--model.args.n_layers", 1, "--model.args.n_heads", 2, "--model.args.n_kv_heads", 1]
TINY += ["--model.args.multiple_of", 16, "--training.seq_len", 16, "--training.local_batch_size", 1]
TINY += ["--lr_scheduler.warmup_steps", 50, "--lr_scheduler.total_steps", ENDLESS, "--debug.deterministic"]


class Lives:
    """One run at two ranks through all its deaths."""

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
        """Until some point of a save of this life (three times of four), or just some time."""
        deadline = time.monotonic() + 15
        aim_at_save = self.draw.random() < 0.75
        if not aim_at_save:
            # From within the start-up, before anything was loaded, to some dozen steps into the run.
            time.sleep(self.draw.uniform(0.1, 2.5))
            return
        skip = self.draw.randrange(6)
        while time.monotonic() < deadline and steps_of(self.checkpoints)[-1:] <= [newest + skip]:
            self.expect_alive(jobs)
            time.sleep(0.002)
        while time.monotonic() < deadline and not self.save_under_way():
            self.expect_alive(jobs)
            time.sleep(0.0005)
        expect(time.monotonic() < deadline, f"no save within 15 s\n{jobs[0].tail()}\n{jobs[1].tail()}")
        time.sleep(self.draw.choice([0, self.draw.uniform(0, 0.005), self.draw.uniform(0, 0.03)]))

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
            # Before ranks have met, nobody can tell a rank that died from one that is still to come.
            victims = jobs
        self.during_a_save += self.save_under_way()
        for job in victims:
            kill(job.process.pid, signal.SIGKILL)
        since = time.monotonic()
        for job in jobs:
            code = job.wait(max(0.1, since + 10 - time.monotonic()))
            expect(job in victims or code == 3, f"life {life}: the survivor exited with {code}, expected 3\n{job.tail()}")
        self.check(life, newest)

    def check(self, life, newest_before):
        """What this life left behind. Rows that it wrote follow the newest checkpoint without a gap."""
        folders = self.checkpoints.glob("step-*") if self.checkpoints.exists() else []
        for folder in folders:
            seen = (folder.name, folder.stat().st_ino)
            # .tmp and .replaced are no checkpoints to any reader.
            if folder.name[5:].isdigit() and seen not in self.checked:
                check_intact(folder)
                self.checked.add(seen)
        expect((steps_of(self.checkpoints) or [0])[-1] >= newest_before, f"life {life}: step {newest_before} was lost")
        rows = read_rows(self.metrics, exact=True) if self.metrics.exists() else []
        steps = [int(row["step"]) for row in rows]
        expect(steps == list(range(1, len(steps) + 1)), f"life {life}: the rows are of steps {steps[-40:]}")
        self.rows += [(life, int(row["step"]), row) for row in rows if int(row["step"]) > newest_before]

    def finish(self):
        """A last life that ends by itself, a few steps on; its last step."""
        newest = steps_of(self.checkpoints)[-1]
        jobs = start_plain(self.context, 2, [*self.words("async", 2), "--training.steps", newest + 5])
        for job in jobs:
            code = job.wait(30)
            expect(code == 0, f"the last life exited with {code}\n{job.tail(30)}")
        return newest + 5


def undisturbed(context, steps):
    jobs = start_plain(context, 2, ["--config", write_job(context, "straight", steps=steps), *TINY])
    for job in jobs:
        code = job.wait(60)
        expect(code == 0, f"the undisturbed run exited with {code}\n{job.tail(30)}")
    return rows_by_step(context.dump("straight") / "metrics.jsonl", exact=True)


@case(300)
def checkpoint_kill_loop(context):
    """$TITAN_KILLS (16) deaths by SIGKILL of a rank or both, sync and async saves: every row ever written, before a kill
    and after, is that of the undisturbed run to the last digit, and no checkpoint was ever torn or lost."""
    kills, seed = int(os.environ.get("TITAN_KILLS", 16)), int(os.environ.get("TITAN_KILLS_SEED", 1))
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
    expect(len(lives.rows) > kills and last > kills, f"{len(lives.rows)} rows, {last} steps: hardly anything was trained")
    # Otherwise the case tests less than it says.
    expect(lives.during_a_save >= kills // 3, f"only {lives.during_a_save} of {kills} kills came during a save")
    print(f"       {kills} kills, {lives.during_a_save} during a save; {len(lives.rows)} rows, {last} steps", flush=True)

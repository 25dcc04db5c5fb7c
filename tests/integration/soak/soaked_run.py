"""A run that a fault disturbs in every start, and what must be true of it after each of them and in the end.

In the end it is compared with a run that nothing disturbs and that trains the same steps on the same meshes: every row,
and the final weights and moments, are equal to the last bit. On one mesh this holds for every row that was ever written,
also for those of steps that were lost and trained again.
"""
import dataclasses
import pathlib
import random
import re
import shutil
import tempfile
import time

from cases_checkpoint_kill import ENDLESS
from cases_failure import CRASH
from checkpoint_tools import SAVE, check_intact, check_same_tensors, read_state, steps_of
from disturbances import FAULTS, Start, newest_state, possible
from fixtures import write_job
from harness import (
    JOBS, Failure, check_identical, end_all_jobs, expect, processes_marked, read_rows, rows_by_step, run,
    wait_until,
)  # fmt: skip
from harness import start as start_job

KEYS = ("loss", "max_loss", "grad_norm", "lr", "tokens_seen")
SHARD, REPLICATE = "--parallelism.data_parallel_shard_degree", "--parallelism.data_parallel_replicate_degree"
TENSOR = "--parallelism.tensor_parallel_degree"
# The smallest model that tensor parallelism can split: nearly all of a start is startup and saves.
MODEL = ["--model.args.dim", 16, "--model.args.n_layers", 1, "--model.args.n_heads", 2, "--model.args.n_kv_heads", 2]
MODEL += ["--model.args.multiple_of", 16, "--training.seq_len", 16, "--training.local_batch_size", 1]
MODEL += ["--lr_scheduler.warmup_steps", 50, "--lr_scheduler.total_steps", ENDLESS, "--debug.deterministic"]
# The order of the data must not depend on the mesh.
MODEL += ["--training.dataset", "jsonl", "--training.global_batch_size", 8, "--training.mixed_precision_param", "float32"]
MODEL += [*SAVE, "--checkpoint.keep_latest_k", 3]
NO_LIMITS_S = 100_000, 100_000  # where no rank hangs, a busy machine must end nothing
RARE = {"hang": 0.2}  # takes as long as ten other faults
MOST_STEPS_TO_GO_ON = 3  # of the last start, which nothing disturbs


@dataclasses.dataclass(frozen=True)
class Mesh:
    ranks: int
    words: tuple
    copies: bool  # other ranks have a copy of rank 0's weights


MESHES = {
    "one": Mesh(1, (), False),
    "sharded": Mesh(2, (), False),
    "replicated": Mesh(2, (REPLICATE, 2, SHARD, 1), True),
    "tensor": Mesh(2, (TENSOR, 2, SHARD, 1), False),
    "hybrid": Mesh(4, (REPLICATE, 2, SHARD, 2), True),
    "sharded_tensor": Mesh(4, (TENSOR, 2, SHARD, 2), False),
}


class SoakedRun:
    """mesh: a name of MESHES, or "changing". A context manager, since copies of its state are in the machine's memory."""

    def __init__(self, context, seed, mesh):
        self.context, self.seed, self.mesh = context, seed, mesh
        self.draw = random.Random(seed)
        self.checkpoints = context.dump("soaked") / "checkpoint"
        self.metrics = context.dump("soaked") / "metrics.jsonl"
        self.config = write_job(context, "soaked", steps=ENDLESS)
        self.copies = pathlib.Path(tempfile.mkdtemp(dir="/dev/shm", prefix="titan-soak-"))  # in memory
        self.faults = []  # of each start
        self.meshes = {}  # step -> the mesh of the start that trained it last
        self.written = []  # (start, step, row) of every row of right bits
        self.intact = set()  # (folder, inode) of the checkpoints that were found intact
        self.damaged = set()  # and of those that a fault has damaged
        self.seconds = 0.0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end_all_jobs()  # a rank that lives would write the next copy
        shutil.rmtree(self.copies, ignore_errors=True)

    def lose_copies(self):
        """Removes the copies in memory, as a machine does that is started anew."""
        for path in self.copies.iterdir():
            shutil.rmtree(path)

    def words(self, config, mesh, interval, mode="disabled", limits_s=NO_LIMITS_S, copies=0, checks=0):
        save = ["--checkpoint.interval", interval, "--checkpoint.async_mode", mode]
        save += ["--checkpoint.memory_interval", copies, "--checkpoint.memory_folder", self.copies]
        save += ["--debug.memory_check_freq", checks]
        limits = ["--comm.init_timeout_seconds", limits_s[0], "--comm.train_timeout_seconds", limits_s[1]]
        return ["--config", config, *MODEL, *save, *limits, *MESHES[mesh].words]

    def next(self):
        """Draws a mesh and a fault that can happen on it now."""
        mesh = self.mesh
        if mesh == "changing":
            # Rows of one mesh without a state would be written over on another: the program refuses that.
            stays = self.meshes and (not newest_state(self).exists() or self.draw.random() < 2 / 3)
            mesh = self.meshes[max(self.meshes)] if stays else self.draw.choice(sorted(MESHES))
        names = possible(self, MESHES[mesh])
        return mesh, self.draw.choices(names, [RARE.get(name, 1) for name in names])[0]

    # ------------------------------------------------------------------------------------------------ one start

    def live(self, mesh, fault):
        """Starts the run on a mesh and disturbs it. Fails if it ends otherwise than it should, or loses something."""
        number = len(self.faults) + 1
        self.faults.append(fault)
        make, needs = FAULTS[fault]
        expect(needs(self, MESHES[mesh]), f"start {number}: {fault} cannot happen now on the mesh '{mesh}'")
        before = steps_of(self.checkpoints)
        start = Start(self, MESHES[mesh])
        make(start)
        if start.damaged:
            self.damaged.add(identity(start.damaged))
        interval, mode = self.draw.choice([1, 2, 3, 5]), self.draw.choice(["disabled", "async"])
        copies, checks = self.draw.choice([0, 1, 2]), self.draw.choice([0, 1])
        words = self.words(self.config, mesh, interval, mode, start.limits_s or NO_LIMITS_S, copies, checks)
        began = time.monotonic()
        try:
            code = self.run(start, f"start-{number}", words)
            expect(code in start.codes, f"exit code {code}, expected {sorted(start.codes)}")
            expect(not CRASH.search(start.job.text()), "a rank crashed")
            self.remember(start.job, mesh, None if start.is_wrong else number)
            self.check(start, before)
        except Failure as failure:
            what = f"seed {self.seed}, start {number} on the mesh '{mesh}' with {fault}"
            raise Failure(f"{what}: {failure}\n{start.job.tail(30)}") from failure
        self.seconds += time.monotonic() - began
        start.job.out_path.unlink()
        start.job.err_path.unlink()
        JOBS.remove(start.job)

    def run(self, start, name, words):
        """Returns the exit code, as of a shell."""
        env = start.environment()
        start.job = job = start_job(self.context, start.mesh.ranks, words, name=name, env=env)
        if start.deed or not start.is_ended:
            rows = lambda: job.text().count("  loss: ") >= start.row or job.process.poll() is not None
            wait_until(rows, 120, f"row {start.row} was not written")
        if start.deed:
            start.deed()
        if not start.is_ended:
            start.signal_launcher(15)
        code = job.wait(120)
        wait_until(lambda: not processes_marked(job.mark), 30, "ranks live on after their launcher")
        return 128 - code if code < 0 else code

    def remember(self, job, mesh, number):
        """Takes the rows of a start from the file, which begins with those of earlier ones. number: None if its bits are
        wrong."""
        if "  loss: " not in job.text():
            return
        saved = rf"from {re.escape(str(self.checkpoints))}/step-(\d+)$|from the copy in memory of step (\d+)"
        loaded = [int(one or other) for one, other in re.findall(saved, job.text(), re.MULTILINE)]
        resumed = loaded[-1] if loaded else 0
        rows = {step: row for step, row in rows_by_step(self.metrics, exact=True).items() if step > resumed}
        self.meshes = {step: each for step, each in self.meshes.items() if step <= resumed} | dict.fromkeys(rows, mesh)
        if number is not None:
            self.written += [(number, step, row) for step, row in rows.items()]

    def check(self, start, before):
        steps = steps_of(self.checkpoints)
        for step in steps:
            folder = self.checkpoints / f"step-{step}"
            if identity(folder) not in self.intact | self.damaged:
                check_intact(folder)
                self.intact.add(identity(folder))
        if before and not start.damaged:
            expect(steps and steps[-1] >= before[-1], f"step {before[-1]} was lost: {steps} are left")
        found = [int(row["step"]) for row in read_rows(self.metrics)] if self.metrics.exists() else []
        expect(found == list(range(1, len(found) + 1)), f"the rows are of steps {found[-40:]}")
        if start.codes == {75}:
            expect(found[-1] in steps, f"step {found[-1]} was to be saved: {steps} are")

    # ------------------------------------------------------------------------------------------------ the end

    def finish(self):
        """Runs on for a few steps that nothing disturbs, and compares. Returns a text of what there was."""
        mesh = self.meshes[max(self.meshes)] if self.meshes else self.next()[0]
        last = max([*self.meshes, 0]) + MOST_STEPS_TO_GO_ON
        self.remember(self.train("soaked", self.config, mesh, last, "last"), mesh, None)
        rows = rows_by_step(self.metrics, exact=True)
        expected, seconds = self.undisturbed(last)
        check_identical(rows, expected, KEYS, f"seed {self.seed}")
        states = [read_state(self.context.dump(name) / f"checkpoint/step-{last}") for name in ("soaked", "undisturbed")]
        check_same_tensors(*states, f"seed {self.seed}: step {last}")
        if self.mesh != "changing":
            self.check_every_row(expected)
        left = list(self.copies.iterdir())
        expect(not left, f"a run that has ended leaves {left} in memory")
        kinds = ", ".join(f"{name} {self.faults.count(name)}" for name in sorted(set(self.faults)))
        return (
            f"seed {self.seed}, mesh {self.mesh}: {len(self.faults)} starts disturbed ({kinds}); {last} steps, all equal to "
            f"an undisturbed run's to the last bit; {len(self.written)} were trained in all; {self.seconds:.0f} s, undisturbed "
            f"{seconds:.0f} s: goodput {100 * seconds / max(self.seconds, 1e-9):.0f} %"
        )

    def train(self, name, config, mesh, last, job_name):
        words = [*self.words(config, mesh, ENDLESS), "--training.steps", last]
        return run(self.context, MESHES[mesh].ranks, words, name=job_name, timeout_s=1200)

    def undisturbed(self, last):
        """Trains the same steps on the same meshes. Returns its rows and the seconds that it took."""
        config = write_job(self.context, "undisturbed", steps=ENDLESS)
        began = time.monotonic()
        for step in range(1, last + 1):
            if step == last or self.meshes[step + 1] != self.meshes[step]:
                self.train("undisturbed", config, self.meshes[step], step, f"undisturbed-{step}")
        seconds = time.monotonic() - began
        return rows_by_step(self.context.dump("undisturbed") / "metrics.jsonl", exact=True), seconds

    def check_every_row(self, expected):
        for start, step, row in self.written:
            for key in KEYS:
                wanted = expected[step][key] if step in expected else row[key]  # lost beyond the end
                expect(row[key] == wanted, f"seed {self.seed}, start {start}, step {step}: {key} is {row[key]}, undisturbed {wanted}")


def identity(folder):
    return folder.name, folder.stat().st_ino

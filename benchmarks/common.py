"""Shared by the benchmarks: jobs that both programs read, alternating runs, and each rank's memory while it runs.

Both programs are run alike: under torchrun, one thread per rank, on the same TOML file, from the same weights. The
program draws them from debug.seed; the reference, which would draw all of them on every rank, loads its shards.
"""
import dataclasses
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/integration"))
import fixtures  # noqa: E402
import harness  # noqa: E402

PROGRAMS = ("titan-train", "PyTorch FSDP2")
MIB = 1 << 20

JOB = """\
[job]
dump_folder = "{folder}/program"
[model]
name = "llama3"
flavor = "debugmodel"
hf_assets_path = "{fixtures}/tokenizer"
[model.args]
{args}
[metrics]
log_freq = 1
[lr_scheduler]
warmup_steps = 2
[training]
dataset = "c4_test"
dataset_path = "{fixtures}/corpus.jsonl"
local_batch_size = {batch}
seq_len = {sequence}
steps = {steps}
mixed_precision_param = "bfloat16"
mixed_precision_reduce = "float32"
[activation_checkpoint]
mode = "none"
[debug]
seed = 42
"""


@dataclasses.dataclass(frozen=True)
class Shape:
    """A model and its batch per rank. The vocabulary is at least the tokenizer's; ids above it do not occur."""

    dim: int
    layers: int
    heads: int
    vocabulary: int
    multiple_of: int
    batch: int
    sequence: int

    def args(self):
        """Returns the keys of model.args, which are also the fields of TorchTitan's TransformerModelArgs."""
        args = {"dim": self.dim, "n_layers": self.layers, "n_heads": self.heads, "vocab_size": self.vocabulary}
        return args | {"multiple_of": self.multiple_of}

    def job(self, folder, assets, steps):
        """Returns the job's TOML text; the program's metrics.jsonl goes to folder/program."""
        args = "\n".join(f"{name} = {value}" for name, value in self.args().items())
        return JOB.format(
            folder=folder, fixtures=assets, args=args, batch=self.batch, sequence=self.sequence, steps=steps
        )

    @property
    def hidden(self):
        return -(-(2 * 4 * self.dim // 3) // self.multiple_of) * self.multiple_of

    def groups(self):
        """Returns the parameters' shapes, one list for each group that communicates at once."""
        square, wide = (self.dim, self.dim), (self.hidden, self.dim)
        block = [square] * 4 + [wide, wide, (self.dim, self.hidden), (self.dim,), (self.dim,)]
        embedding = (self.vocabulary, self.dim)
        return [[embedding], *[block] * self.layers, [(self.dim,), embedding]]


SHAPES = {
    "125m": Shape(768, 12, 12, 32000, 256, batch=2, sequence=512),
    "debug": Shape(256, 6, 16, 2048, 256, batch=4, sequence=256),
}
# The smallest model that a run can have: what remains is the program, its libraries, threads and connections.
BARE = Shape(16, 1, 1, fixtures.VOCABULARY, 16, batch=1, sequence=16)


def write_job(folder, shape, assets, steps):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "job.toml"
    path.write_text(shape.job(folder, assets, steps))
    return path


def make_seed(config, folder):
    """Writes a DCP folder with the weights of the job's seed, drawn by the reference. Returns the folder."""
    command = [harness.VENV / "python", harness.REFERENCE / "init_weights.py", "--config", config, "--save", folder]
    job = harness.Job(command, folder.parent / "logs", "seed")
    code = job.wait(600)
    harness.expect(code == 0, f"the weights could not be drawn\n{job.tail(30)}")
    return folder


class Watch:
    """Reads the memory of a job's ranks from outside while it runs, so that no program reports about itself.

    The peak is the kernel's own (VmHWM), so that no moment between two readings is missed.
    """

    FIELDS = ("VmHWM", "VmRSS", "RssAnon", "RssFile", "RssShmem")
    INTERVAL_S = 0.02

    def __init__(self, job):
        self.job = job
        self.pids = {}  # rank -> pid
        self.peaks = {}  # rank -> VmHWM in bytes
        self.largest = {}  # rank -> all fields at the reading with the largest VmRSS

    def run(self, ranks, timeout_s):
        """Waits for the job's end. Returns its exit code."""
        deadline, next_search = time.monotonic() + timeout_s, 0.0
        while self.job.process.poll() is None and time.monotonic() < deadline:
            if len(self.pids) < ranks and time.monotonic() > next_search:
                self.pids = self.find_ranks()
                next_search = time.monotonic() + 0.2
            # A process that ended was not the rank itself: the script that starts an installed program has children.
            self.pids = {rank: pid for rank, pid in self.pids.items() if self.read(rank, pid)}
            time.sleep(self.INTERVAL_S)
        return self.job.wait(max(deadline - time.monotonic(), 1))

    def find_ranks(self):
        """Returns {rank: pid}. The launcher has no RANK; the processes that it starts have."""
        found = {}
        for pid in harness.processes_marked(self.job.mark):
            rank = harness.environment_of(pid).get("RANK")
            if rank is not None:
                found[int(rank)] = pid
        return found

    def read(self, rank, pid):
        """Returns False if the process has ended."""
        try:
            lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            return False
        words = (line.split() for line in lines)
        values = {w[0][:-1]: int(w[1]) * 1024 for w in words if w and w[0][:-1] in self.FIELDS}
        if "VmHWM" not in values:
            return False  # it is a zombie
        self.peaks[rank] = max(values["VmHWM"], self.peaks.get(rank, 0))
        if values["VmRSS"] > self.largest.get(rank, {}).get("VmRSS", 0):
            self.largest[rank] = values
        return True


@dataclasses.dataclass
class Result:
    rows: list  # the objects of metrics.jsonl
    peaks: list  # bytes, by rank
    largest: dict  # rank -> /proc/PID/status fields at the largest resident set seen


def run_once(which, program, config, seed, ranks, words=(), timeout_s=900, make_watch=Watch):
    """Runs one of PROGRAMS once; `config` is in a folder of its own. make_watch(job): a Watch."""
    folder = config.parent
    launcher = [harness.VENV / "torchrun", "--nproc-per-node", ranks, "--master-port", harness.free_port()]
    if which == PROGRAMS[0]:
        output = folder / "program/metrics.jsonl"
        output.unlink(missing_ok=True)
        command = [*launcher, "--no-python", program, "--config", config, *words]
    else:
        output = folder / "reference.jsonl"
        command = [*launcher, harness.REFERENCE / "llama_fsdp2.py", "--config", config, "--output", output]
        command += ["--init-from", seed, *words]
    job = harness.Job(command, folder / "logs", which.replace(" ", "-"))
    watch = make_watch(job)
    code = watch.run(ranks, timeout_s)
    harness.expect(code == 0, f"{which} failed with {code}: {' '.join(job.command)}\n{job.tail(30)}")
    harness.expect(len(watch.peaks) == ranks, f"{which}: {len(watch.peaks)} of {ranks} ranks were seen in /proc")
    return Result(harness.read_rows(output), [watch.peaks[rank] for rank in range(ranks)], watch.largest)


def median_and_range(values, scale=1.0, digits=0):
    low, middle, high = (f"{f(values) / scale:.{digits}f}" for f in (min, statistics.median, max))
    return f"{middle} ({low}-{high})"

"""Runs titan-train or TorchTitan 0.2.2 once on CPU and Gloo with one TOML file, measured from outside.

TorchTitan runs unchanged except for tests/reference/torchtitan_cpu.py, which provides what it needs of an accelerator.
Sizes that have no key in its TOML go to TorchTitan through $TITAN_PEER_ARGS and to the program on its command line.
Both get OMP_NUM_THREADS = cores / ranks.
"""
import dataclasses
import json
import math
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import time

import common
from common import harness

OURS, EAGER, COMPILED = "titan-train", "TorchTitan eager", "TorchTitan compiled"
REQUIREMENTS = pathlib.Path(__file__).with_name("requirements-torchtitan.txt")
PEER_LINE = re.compile(r"step: +(?P<step>\d+)  loss: +(?P<loss>-?\d+\.\d{5})  grad_norm: .*?tps: (?P<tps>[\d,]+)")
FIRST_LINE = re.compile(r"step: +1 .{0,20}loss:")
CORES = len(os.sched_getaffinity(0))
TICKS = os.sysconf("SC_CLK_TCK")

# Variables that limit the instructions of PyTorch's libraries. titan-train has cpu.instructions for that.
PLAYED = {
    "all": {},
    "avx512_bf16": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16", "MKL_ENABLE_INSTRUCTIONS": "AVX512"},
    "avx512": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "MKL_ENABLE_INSTRUCTIONS": "AVX512"},
    "avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"},
}

JOB = """\
[job]
dump_folder = "outputs"
[model]
name = "llama3"
flavor = "debugmodel"
hf_assets_path = "{data}/tokenizer"
[metrics]
log_freq = 1
[optimizer]
name = "AdamW"
lr = 8e-4
[lr_scheduler]
warmup_steps = 2
decay_ratio = 0.8
decay_type = "linear"
[training]
dataset = "c4_test"
dataset_path = "{data}/corpus"
local_batch_size = {batch}
seq_len = {sequence}
steps = {steps}
mixed_precision_param = "{dtype}"
mixed_precision_reduce = "float32"
[activation_checkpoint]
mode = "none"
[debug]
seed = 42
"""
SEED = """\
[checkpoint]
enable = true
create_seed_checkpoint = true
"""
START = """\
[checkpoint]
enable = true
load_only = true
initial_load_path = "{seed}"
"""


# ------------------------------------------------------------------------------------------------ environment


def find_python(venv):
    """Returns a Python with TorchTitan: $TITAN_PEER_PYTHON, else the one of `venv`, which is made if it is missing."""
    given = os.environ.get("TITAN_PEER_PYTHON")
    if given:
        harness.expect(harness.has_module(given, "torchtitan"), f"TITAN_PEER_PYTHON={given} is not a Python with torchtitan")
        return pathlib.Path(given)
    python = venv / "bin/python"
    if not harness.has_module(python, "torchtitan"):
        print(f"making {venv} (torch and torchtitan, about 5 GB)", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, "-r", REQUIREMENTS], check=True)
    return python


def make_data(work):
    """Returns a folder with a corpus and a tokenizer.json of less than 2,048 entries, for both; kept between runs."""
    folder = work / "torchtitan-data"
    if not (folder / "complete").exists():
        import tokenizer_fixtures

        shutil.rmtree(folder, ignore_errors=True)
        fixtures = common.fixtures.make_fixtures(work)
        with open(fixtures / "corpus.jsonl", encoding="utf-8") as file:
            texts = [json.loads(line)["text"] for line in file]
        (folder / "corpus").mkdir(parents=True)
        shutil.copy(fixtures / "corpus.jsonl", folder / "corpus/data.jsonl")
        lines = [line for text in texts for line in text.split("\n")]
        tokenizer_fixtures.make_tokenizer("llama3", folder / "tokenizer", lines, 1900)
        (folder / "complete").touch()
    return folder


def gemm_peak(python, folder, instructions="all"):
    """Returns {name: FLOP/s of all cores together}; see gemm_peak.py."""
    command = [python, pathlib.Path(__file__).with_name("gemm_peak.py"), CORES]
    job = harness.Job(command, folder / "logs", "gemm", PLAYED[instructions])
    code = job.wait(180)
    harness.expect(code == 0, f"gemm_peak.py failed with {code}\n{job.tail(30)}")
    return json.loads(job.out_path.read_text().splitlines()[-1])


def cpu_ticks():
    """Returns the ticks since boot in which the machine's cores were busy or used by its host."""
    user, nice, system, _, _, irq, softirq, steal = map(int, open("/proc/stat").readline().split()[1:9])
    return user + nice + system + irq + softirq + steal


def own_seconds():
    """Returns the CPU seconds of this process and of its children that have ended."""
    return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


# ------------------------------------------------------------------------------------------------ one run


@dataclasses.dataclass
class Run:
    tokens_per_second: list  # all ranks together, one value per step
    losses: list  # one value per step
    peak_bytes: int  # VmHWM of the largest rank
    rank_seconds: float  # from the start of the first rank's process to the end of the first step
    command_seconds: float  # to the same point from the start of the command, including the launcher
    cpu_seconds: float  # all ranks together, per step after the first
    others: float  # share of the cores' time that other processes used


class StepWatch(common.Watch):
    """Also records when the first step's line is printed, and the ranks' CPU time then and at the last line.

    Both may be late by at most one interval.
    """

    def __init__(self, job, steps, single):
        super().__init__(job)
        self.last_line = re.compile(rf"step: +{steps} .{{0,20}}loss:")
        self.process_start = self.first_step = None  # seconds since the machine started
        self.cpu = {}  # rank -> seconds so far
        self.cpu_at_first = self.cpu_at_last = None  # sums over all ranks
        if single:  # no launcher: the job is the rank
            self.pids = {0: job.process.pid}

    def read(self, rank, pid):
        super().read(rank, pid)
        try:
            stat = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return  # it ended meanwhile
        self.cpu[rank] = (int(stat[11]) + int(stat[12])) / TICKS
        if self.process_start is None:
            self.process_start = int(stat[19]) / TICKS
        if self.cpu_at_last is None and rank == max(self.pids):
            self.look_at_console()

    def look_at_console(self):
        text = self.job.text()
        if self.first_step is None and FIRST_LINE.search(text):
            self.first_step = time.clock_gettime(time.CLOCK_BOOTTIME)
            self.cpu_at_first = sum(self.cpu.values())
        if self.last_line.search(text):
            self.cpu_at_last = sum(self.cpu.values())


@dataclasses.dataclass(frozen=True)
class Cell:
    """A configuration to compare: a model, a number of ranks and a dtype."""

    name: str
    shape: common.Shape
    ranks: int
    dtype: str
    steps: int
    tensor_parallel: int = 1  # ranks that share each layer
    context_parallel: int = 1  # ranks that share each sequence
    pipeline_parallel: int = 1  # ranks that share the stack of layers
    schedule: str = "1F1B"  # of the pipeline
    instructions: str = "all"  # a name in PLAYED

    @property
    def mesh_words(self):
        """Returns the options of the mesh. With tensor parallelism there is no clipping: without fully_shard,
        TorchTitan clips gradients of norms too little. With a pipeline every step is clipped: TorchTitan does not
        divide its gradients by the tokens, which clipping makes up for."""
        words = ["--parallelism.context_parallel_degree", self.context_parallel] if self.context_parallel > 1 else []
        if self.tensor_parallel > 1:
            words += ["--parallelism.tensor_parallel_degree", self.tensor_parallel, "--training.max_norm", 1000]
        if self.pipeline_parallel > 1:
            words += ["--parallelism.pipeline_parallel_degree", self.pipeline_parallel]
            words += ["--parallelism.pipeline_parallel_schedule", self.schedule, "--training.max_norm", 0.1]
        return words

    @property
    def threads(self):
        return max(1, CORES // self.ranks)

    def toml(self, data, steps):
        shape = self.shape
        return JOB.format(data=data, batch=shape.batch, sequence=shape.sequence, steps=steps, dtype=self.dtype)

    def flops_per_token(self):
        """Counts like TorchTitan: 6 per weight except the embedding's, and attention without the causal half."""
        shape = self.shape
        weights = sum(math.prod(p) for group in shape.groups()[1:] for p in group)
        return 6 * weights + 12 * shape.layers * shape.dim * shape.sequence


class Pair:
    """Holds both programs and their files, and starts them."""

    def __init__(self, program, python, work, folder):
        self.program, self.python, self.folder = program, python, folder
        self.data = make_data(work)
        self.seeds = {}

    def environment(self, cell):
        return {
            "OMP_NUM_THREADS": str(cell.threads),
            "CUDA_VISIBLE_DEVICES": "",
            "HF_HOME": str(self.folder / "hf"),
            "HF_HUB_OFFLINE": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "inductor"),
            "TITAN_PEER_ARGS": json.dumps(cell.shape.args()),
            **PLAYED[cell.instructions],
        }

    def peer_command(self, ranks):
        launcher = [self.python, "-m", "torch.distributed.run", "--nproc-per-node", ranks]
        return [*launcher, "--master-port", harness.free_port(), harness.REFERENCE / "torchtitan_cpu.py"]

    def seed(self, cell):
        """Returns the folder of TorchTitan's own seed checkpoint of this model, made once."""
        if cell.name not in self.seeds:
            folder = self.folder / f"seed-{cell.name}"
            folder.mkdir()
            (folder / "job.toml").write_text(cell.toml(self.data, 1) + SEED)
            words = ["--job.config_file", folder / "job.toml", "--job.dump_folder", folder / "dump"]
            job = harness.Job([*self.peer_command(1), *words], folder / "logs", "seed", self.environment(cell))
            code = job.wait(600)
            harness.expect(code == 0, f"TorchTitan made no seed checkpoint ({code})\n{job.tail(30)}")
            self.seeds[cell.name] = folder / "dump/checkpoint/step-0"
        return self.seeds[cell.name]

    def command(self, side, cell, words):
        if side != OURS:
            return [*self.peer_command(cell.ranks), *words, *(["--compile.enable"] if side == COMPILED else [])]
        sizes = [word for key, value in cell.shape.args().items() for word in (f"--model.args.{key}", value)]
        launcher = ["--nproc", cell.ranks] if cell.ranks > 1 else []
        return [self.program, *launcher, *words, *sizes, "--cpu.instructions", cell.instructions]

    def run(self, side, cell, steps):
        """Trains `steps` steps from the seed."""
        mesh = f"{cell.pipeline_parallel}-{cell.context_parallel}-{cell.tensor_parallel}"
        folder = self.folder / f"{cell.name}-{cell.ranks}-{mesh}-{cell.dtype}"
        folder.mkdir(exist_ok=True)
        config, dump = folder / "job.toml", folder / "dump"
        config.write_text(cell.toml(self.data, steps) + START.format(seed=self.seed(cell)))
        shutil.rmtree(dump, ignore_errors=True)
        words = ["--job.config_file", config, "--job.dump_folder", dump, *cell.mesh_words]
        ticks, own, begin = cpu_ticks(), own_seconds(), time.clock_gettime(time.CLOCK_BOOTTIME)
        job = harness.Job(self.command(side, cell, words), folder / "logs", side.replace(" ", "-"), self.environment(cell))
        watch = StepWatch(job, steps, single=side == OURS and cell.ranks == 1)
        code = watch.run(cell.ranks, 1800)
        wall = time.clock_gettime(time.CLOCK_BOOTTIME) - begin
        harness.expect(code == 0, f"{side} failed with {code}: {' '.join(job.command)}\n{job.tail(40)}")
        harness.expect(len(watch.peaks) == cell.ranks, f"{side}: {len(watch.peaks)} of {cell.ranks} ranks were seen")
        harness.expect(watch.first_step, f"{side}: no line of step 1 was seen\n{job.tail(40)}")
        # A job may end before its last line is read; then the previous reading counts.
        cpu_end = sum(watch.cpu.values()) if watch.cpu_at_last is None else watch.cpu_at_last
        busy = (cpu_ticks() - ticks) / TICKS - (own_seconds() - own)
        rows = our_rows(dump) if side == OURS else peer_rows(job.text(), cell.ranks)
        harness.expect(sorted(rows) == list(range(1, steps + 1)), f"{side}: steps {sorted(rows)}, expected 1 to {steps}")
        return Run(
            # Both report the speed of one rank: its tokens divided by the time since the last logged step.
            tokens_per_second=[cell.ranks * rows[step][0] for step in sorted(rows)],
            losses=[rows[step][1] for step in sorted(rows)],
            peak_bytes=max(watch.peaks.values()),
            rank_seconds=watch.first_step - watch.process_start,
            command_seconds=watch.first_step - begin,
            cpu_seconds=(cpu_end - watch.cpu_at_first) / (steps - 1),
            others=max(0.0, busy / (wall * CORES)),
        )


def our_rows(dump):
    """Returns {step: (tokens/s per rank, loss)}."""
    rows = harness.rows_by_step(dump / "metrics.jsonl")
    return {step: (row["tokens_per_second"], row["loss"]) for step, row in rows.items()}


def peer_rows(text, ranks):
    """Returns {step: (tokens/s per rank, loss)} from the console, where every rank prints its own lines. Of a pipeline,
    ranks without the last stage print a negative loss."""
    lines = {}
    for match in PEER_LINE.finditer(text):
        speed = float(match["tps"].replace(",", ""))
        lines.setdefault(int(match["step"]), []).append((speed, float(match["loss"])))
    for step, found in lines.items():
        harness.expect(len(found) == ranks, f"TorchTitan printed {len(found)} lines of step {step}, expected {ranks}")
    return {step: (sum(speed for speed, _ in found) / ranks, max(loss for _, loss in found)) for step, found in lines.items()}

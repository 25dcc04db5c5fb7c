"""Counts what a step of both programs asks of CUDA, on a CUDA runtime that computes nothing: no GPU is needed.

    TITAN_PEER_PYTHON=PYTHON .venv/bin/python benchmarks/null_device.py [--ranks 2] [--json FILE] [MODE ...]

Needs a build with a CUDA toolkit and tests (build/release/libtitan_null_cuda.so and libtitan_operator_bytes.so,
tests/support/) and, for the peer's rows, TorchTitan 0.2.2 with the CUDA wheel of torch. Both run the wheel's own CUDA
code and ProcessGroupNCCL: each kernel, copy, wait and collective counts that reaches CUDA's or NCCL's functions, and
the memory is what the caching allocator took from the device. Bytes are those of the tensors that operators read and
write, the optimizer's too, once for each operator; --json lists them by operator. The blocks are Llama 3.1 8B's, the
sequence has 8,192 tokens. What a step asks for is half the difference between four steps and two, and a block has half
the difference between four blocks and two. Nothing here is a time. A MODE is the start of a row's name; without one, all
rows are measured.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import shutil

import common
import titan_pair
from common import MIB, harness

BUILD = harness.ROOT / "build/release"
ARGS = {"dim": 4096, "n_heads": 32, "n_kv_heads": 8, "ffn_dim_multiplier": 1.3, "multiple_of": 1024, "vocab_size": 128256, "rope_theta": 500000}
SEQUENCE = 8192
FULL = ["--activation_checkpoint.mode", "full"]
BY_OP = ["--activation_checkpoint.mode", "selective", "--activation_checkpoint.selective_ac_option", "op"]
# Each mode's words, and who runs it. With tensor parallelism there are twice as many ranks: TorchTitan takes bfloat16
# only where FSDP shards, too.
MODES = {
    "ZeRO-3": ([], "both"),
    "ZeRO-3, own kernels": (["--cuda.kernels", "own"], "ours"),
    "ZeRO-2": (["--parallelism.fsdp_reshard_after_forward", "never"], "both"),
    "ZeRO-3, recompute by op": (BY_OP, "both"),
    "ZeRO-3, recompute all": (FULL, "both"),
    "tensor parallel by 2 x ZeRO-3": (["--parallelism.tensor_parallel_degree", "2"], "both"),
}
COLLECTIVES = ("ncclAllGather", "ncclReduceScatter", "ncclAllReduce", "ncclBroadcast", "ncclSend", "ncclRecv")
COPIES = ("cudaMemcpyAsync", "cudaMemsetAsync")
COLUMNS = (
    *("mode", "kernels per block", "beside", "copies per block", "beside", "collectives per block", "beside"),
    *("waits of the host per step", "MiB read and written per block", "beside", "GiB of memory, 2 blocks", "MiB of memory per block"),
)
PROGRAMS = {"ours": "titan-train", "theirs": "TorchTitan eager"}


@dataclasses.dataclass
class Counts:
    """Holds what the process of one rank asked for, or a part of it."""

    kernels: float
    copies: float
    collectives: float
    waits: float
    outside: float  # kernels and copies that no operator launched, so that their bytes are missing
    moved: float  # bytes that operators read and write
    peak: float = 0

    def minus(self, other, divisor):
        return Counts(*((a - b) / divisor for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)))


def counts_of(trace, outside, operators):
    calls = trace["calls"]
    of = lambda names: sum(calls.get(name, 0) for name in names)  # noqa: E731
    waits = sum(trace["waits"].values())
    asked = trace["num_launches"], of(COPIES), of(COLLECTIVES), waits
    return Counts(*asked, outside, sum(operators.values()), max(trace["peak_bytes"]))


def command_of(side, pair, ranks, words):
    if side == "ours":
        return [pair.program, "--nproc", ranks, *words, "--training.on_nan", "warn"]
    launcher = [pair.python, "-m", "torch.distributed.run", "--nproc-per-node", ranks, "--master-port", harness.free_port()]
    return [*launcher, harness.REFERENCE / "torchtitan_gpu.py", *words]


def run(side, pair, folder, ranks, layers, steps, words):
    """Trains on null devices. Returns the counts of rank 0's process that trained, and its bytes by operator."""
    shutil.rmtree(folder, ignore_errors=True)
    trace, operators = folder / "trace", folder / "operators"
    trace.mkdir(parents=True)
    operators.mkdir()
    job = folder / "job.toml"
    job.write_text(titan_pair.JOB.format(data=pair.data, batch=1, sequence=SEQUENCE, steps=steps, dtype="bfloat16"))
    args = ARGS | {"n_layers": layers}
    words = ["--job.config_file", job, "--job.dump_folder", folder / "dump", "--metrics.log_freq", 1000, *words]
    if side == "ours":
        words += ["--training.device", "cuda"] + [word for key, value in args.items() for word in (f"--model.args.{key}", value)]
    env = {
        "LD_PRELOAD": str(BUILD / "libtitan_null_cuda.so"),
        "NULL_CUDA_OBSERVER": str(BUILD / "libtitan_operator_bytes.so"),
        "NULL_CUDA_OPERATORS": str(operators),
        "NULL_CUDA_READ": "zeros",
        "NULL_CUDA_MOVED": "0",
        "NULL_CUDA_TRACE": str(trace),
        "OMP_NUM_THREADS": "1",
        "PYTORCH_ALLOC_CONF": "expandable_segments:True",
        "TITAN_PEER_ARGS": json.dumps(args),
        "HF_HOME": str(folder / "hf"),
        "HF_HUB_OFFLINE": "1",
    }
    started = harness.Job(command_of(side, pair, ranks, words), folder / "logs", side, env, folder)
    code = started.wait(300)
    harness.expect(code == 0, f"{PROGRAMS[side]}: exit code {code}\n{started.tail(40)}")
    found = [json.loads(path.read_text()) for path in trace.glob("*.json")]
    trained = max((each for each in found if each["rank"] == 0), key=lambda each: each["num_launches"])
    counted = json.loads((operators / f"operator_bytes.0.{trained['pid']}.json").read_text())
    moved = {name: of["read"] + of["written"] for name, of in counted["operators"].items()}
    return counts_of(trained, counted["outside"], moved), moved


def measure(side, pair, folder, ranks, words):
    """Returns the counts of a step of two blocks, and of one block, and its bytes by operator."""
    steps, operators = {}, {}
    for layers in (2, 4):
        (two, of_two), (four, of_four) = (run(side, pair, folder / f"{layers}-{n}", ranks, layers, n, words) for n in (2, 4))
        steps[layers] = dataclasses.replace(four.minus(two, 2), peak=four.peak)
        outside = steps[layers].outside
        harness.expect(outside == 0, f"no operator launched {outside} kernels of a step: their bytes are missing")
        operators[layers] = {name: (of_four[name] - of_two.get(name, 0)) / 2 for name in of_four}
    by_operator = {name: (value - operators[2].get(name, 0)) / 2 for name, value in operators[4].items()}
    return steps[2], steps[4].minus(steps[2], 2), {name: value for name, value in by_operator.items() if value}


def number(value):
    return f"{value:.0f}" if abs(value - round(value)) < 1e-9 else f"{value:.1f}"


def row(name, step, block):
    rest = step.minus(Counts(*(2 * value for value in dataclasses.astuple(block))), 1)
    cells = [block.kernels, rest.kernels, block.copies, rest.copies, block.collectives, rest.collectives, step.waits]
    of_memory = [f"{block.moved / MIB:,.0f}", f"{rest.moved / MIB:,.0f}", f"{step.peak / 1024 / MIB:.2f}", f"{block.peak / MIB:.0f}"]
    return f"| {name} | {' | '.join([*map(number, cells), *of_memory])} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modes", nargs="*", metavar="MODE")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--work", type=pathlib.Path, default=harness.ROOT / "build/benchmarks")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    python = os.environ.get("TITAN_PEER_PYTHON")
    pair = titan_pair.Pair(BUILD / "titan-train", python, options.work, options.work / "null_device")
    print(f"| {' | '.join(COLUMNS)} |")
    print(f"|{' --- |' * len(COLUMNS)}")
    results = {}
    for mode, (words, who) in MODES.items():
        if options.modes and not any(mode.startswith(start) for start in options.modes):
            continue
        ranks = options.ranks * (2 if mode.startswith("tensor") else 1)
        for side, program in PROGRAMS.items():
            if who not in ("both", side) or (side == "theirs" and not python):
                continue
            step, block, operators = measure(side, pair, pair.folder / side, ranks, words)
            print(row(f"{program}, {mode}", step, block), flush=True)
            counts = {"step of two blocks": dataclasses.asdict(step), "block": dataclasses.asdict(block)}
            results[f"{program}, {mode}"] = counts | {"bytes of a block by operator": operators}
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()

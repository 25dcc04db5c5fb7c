"""Counts what a step asks of a simulated GPU: kernels, collectives, waits of the host and peak memory by mode.

    .venv/bin/python benchmarks/device_schedule.py [--ranks 2] [--json FILE]

Needs a build with tests (build/release/simulated-titan-train). If $TITAN_PEER_PYTHON or the folder of
compare_torchtitan.py has TorchTitan 0.2.2, its own operators are counted too, in the step of the same TOML file. The
kernels of a block are half the difference between a model of four blocks and one of two. Nothing here is a time: the
numbers are the same on every machine.
"""
import argparse
import collections
import dataclasses
import json
import os
import pathlib
import re
import shutil

import common
import titan_pair
from common import harness

SHAPE = common.Shape(256, 2, 8, 2048, 256, batch=2, sequence=128)
MODES = {
    "ZeRO-3": [],
    "ZeRO-2": ["--parallelism.fsdp_reshard_after_forward", "never"],
    "ZeRO-3, recompute by op": ["--activation_checkpoint.mode", "selective", "--activation_checkpoint.selective_ac_option", "op"],
    "ZeRO-3, recompute all": ["--activation_checkpoint.mode", "full"],
    "ZeRO-3, accumulate 2": ["--training.global_batch_size", "{twice}"],
    "ZeRO-3, own kernels": ["--cuda.kernels", "own"],
    "ZeRO-3, offload": ["--training.enable_cpu_offload"],
}
STEP = 3
COLLECTIVE = re.compile(r"all_?gather|reduce_?scatter|all_?reduce|broadcast|_coalesced")
# Names of the same kernel: in a device's library, on the simulated device, in torch's Python layer.
SAME = {
    **dict.fromkeys(("copy to device", "copy to host", "clone", "_to_copy"), "copy_"),
    "chunk_cat": "_chunk_cat",
    **dict.fromkeys(("zeros", "zeros_like", "zero_", "ones", "ones_like", "full"), "fill_"),
}


@dataclasses.dataclass
class Step:
    kernels: collections.Counter
    collectives: int
    waits: int = 0
    peak: int = 0
    most: dict = dataclasses.field(default_factory=dict)


def name_of(operator):
    name = operator.removeprefix("aten::").removeprefix("fsdp::").split(".")[0].removesuffix("_for_cpu").replace("_for_cpu_", "_")
    return SAME.get(name, name)


def step_of(counts):
    kernels = collections.Counter()
    for operator, count in counts.items():
        kernels[name_of(operator)] += count
    collectives = sum(count for name, count in kernels.items() if COLLECTIVE.search(name))
    return Step(collections.Counter({n: c for n, c in kernels.items() if not COLLECTIVE.search(n) and "c10d" not in n}), collectives)


def write_job(folder, layers, data):
    folder.mkdir(parents=True, exist_ok=True)
    shape = dataclasses.replace(SHAPE, layers=layers)
    path = folder / "job.toml"
    path.write_text(titan_pair.JOB.format(data=data, batch=shape.batch, sequence=shape.sequence, steps=STEP + 1, dtype="bfloat16"))
    return path, shape.args()


def ours(folder, layers, ranks, words, data):
    job, args = write_job(folder, layers, data)
    words = [word.format(twice=2 * ranks * SHAPE.batch) for word in words]
    words += [word for name, value in args.items() for word in (f"--model.args.{name}", value)]
    context = harness.Context(harness.ROOT / "build/release/simulated-titan-train", folder, data)
    variables = {rank: {"FINDINGS": str(folder / "found"), "OMP_NUM_THREADS": "1"} for rank in range(ranks)}
    words = ["--config", job, "--training.device", "cuda", "--metrics.log_freq", 1000, *words]
    for started in harness.start_plain(context, ranks, words, {rank: folder for rank in range(ranks)}, variables):
        code = started.wait(120)
        harness.expect(code == 0, f"exit code {code}\n{started.tail(20)}")
    found = json.loads((folder / "found.0.json").read_text())
    harness.expect(not found["races"], "\n".join(found["races"]))
    at = found["steps"][str(STEP)]
    step = step_of(at["kernels"])
    step.waits = sum(each["step"] == STEP and each["thread"] != "background" for each in found["synchronizations"])
    step.peak, step.most = at["peak_live_bytes"], at["most_by_use"]
    return step


def theirs(python, folder, layers, ranks, words, data):
    job, args = write_job(folder, layers, data)
    words = [word.format(twice=2 * ranks * SHAPE.batch) for word in words]
    script = pathlib.Path(__file__).with_name("torchtitan_kernels.py")
    command = [python, "-m", "torch.distributed.run", "--nproc-per-node", ranks, "--master-port", harness.free_port(), script]
    env = {"COUNTS": str(folder / "counts.json"), "TITAN_PEER_ARGS": json.dumps(args), "OMP_NUM_THREADS": "1"}
    started = harness.Job([*command, "--job.config_file", job, "--metrics.log_freq", 1000, *words], folder / "logs", "peer", env, folder)
    code = started.wait(300)
    harness.expect(code == 0, f"TorchTitan: exit code {code}\n{started.tail(30)}")
    counts = json.loads((folder / "counts.json").read_text())
    step = step_of(counts)
    step.waits = counts.get("aten::_local_scalar_dense", 0)
    return step


def parts(two, four):
    """Returns (kernels of a block, kernels of the rest of a step), each a Counter."""
    block = collections.Counter({n: (four.kernels[n] - two.kernels[n]) / 2 for n in four.kernels | two.kernels})
    return block, collections.Counter({n: two.kernels[n] - 2 * block[n] for n in four.kernels | two.kernels})


def number(value):
    return f"{value:.0f}" if abs(value - round(value)) < 1e-9 else f"{value:.1f}"


def print_modes(results):
    print("| mode | kernels a block | beside blocks | collectives a step | waits of the host | peak MiB | of it gathered | of it reductions |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, (two, four) in results.items():
        block, rest = parts(two, four)
        memory = [four.peak, four.most.get("gathered", 0), four.most.get("reduction", 0)]
        cells = [number(sum(block.values())), number(sum(rest.values())), four.collectives, four.waits]
        cells += [f"{bytes / common.MIB:.2f}" if four.peak else "" for bytes in memory]
        print(f"| {name} | {' | '.join(map(str, cells))} |")


def print_kernels(mine, peer):
    """Prints the kernels of a block, one per line."""
    blocks = {"titan-train": parts(*mine)[0]} | ({"TorchTitan eager": parts(*peer)[0]} if peer else {})
    print(f"\n| kernel of a block, forward and backward | {' | '.join(blocks)} |\n| --- |{' --- |' * len(blocks)}")
    names = sorted(set().union(*blocks.values()), key=lambda n: -blocks["titan-train"][n])
    for name in names:
        if any(block[name] for block in blocks.values()):
            print(f"| `{name}` | {' | '.join(number(block[name]) for block in blocks.values())} |")


def to_json(two, four):
    block, rest = parts(two, four)
    return {"block": block, "rest": rest, "collectives": four.collectives, "waits": four.waits, "peak": four.peak, "most": four.most}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--work", type=pathlib.Path, default=harness.ROOT / "build/benchmarks")
    parser.add_argument("--venv", type=pathlib.Path, default=harness.ROOT / "build/torchtitan-venv")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    data = titan_pair.make_data(options.work)
    folder = options.work / "device_schedule"
    shutil.rmtree(folder, ignore_errors=True)
    results = {}
    for name, words in MODES.items():
        results[name] = [ours(folder / f"{name}-{n}", n, options.ranks, words, data) for n in (2, 4)]
    peers = {}
    python = os.environ.get("TITAN_PEER_PYTHON") or options.venv / "bin/python"
    if harness.has_module(python, "torchtitan"):
        for name in ("ZeRO-3", "ZeRO-3, recompute all"):
            peers[f"TorchTitan eager, {name}"] = [theirs(python, folder / f"peer-{name}-{n}", n, options.ranks, MODES[name], data) for n in (2, 4)]
    print_modes(results | peers)
    print_kernels(results["ZeRO-3"], peers.get("TorchTitan eager, ZeRO-3"))
    if options.json:
        options.json.write_text(json.dumps({name: to_json(*steps) for name, steps in (results | peers).items()}, indent=1))


if __name__ == "__main__":
    main()

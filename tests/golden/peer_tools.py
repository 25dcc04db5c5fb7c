"""Shared by the scripts that ask the peers: runs of both programs, TorchTitan's batches, and files of answers."""
import hashlib
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/integration"))

import golden  # noqa: E402
from checkpoint_tools import train  # noqa: E402
from harness import ANSI, REFERENCE, Job, expect, free_port, rows_by_step  # noqa: E402

LINE = re.compile(r"step: +(?P<step>\d+)  loss: +(?P<loss>\d+\.\d{5})  grad_norm: +(?P<grad_norm>\d+\.\d{4})")


def ours(context, ranks, name, *more, sizes=None, job=None):
    """Returns the program's figures of a job (a file; by default golden.write_job's)."""
    words = ["--config", job or golden.write_job(context, name), *golden.size_words(golden.SIZES if sizes is None else sizes)]
    train(context, ranks, [*words, *more], name)
    return figures(rows_by_step(context.dump(name) / "metrics.jsonl"))


def torchtitans(context, ranks, name, words=None, sizes=None):
    """Returns the figures that TorchTitan's console says of its steps; empty lists if it made none."""
    sizes = golden.SIZES if sizes is None else sizes
    env = {"TITAN_PEER_ARGS": json.dumps(sizes)}
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", ranks, "--master-port", free_port()]
    command += [REFERENCE / "torchtitan_cpu.py", *(words or ["--job.config_file", golden.write_job(context, name)])]
    job = Job(command, context.folder / "logs", name, env)
    code = job.wait(150)
    expect(code == 0, f"TorchTitan failed with {code}\n{job.tail(40)}")
    matches = LINE.finditer(ANSI.sub("", job.text()))
    return figures({int(match["step"]): {key: float(match[key]) for key in golden.FIGURES} for match in matches})


def figures(rows):
    """Returns the columns of a step -> row table."""
    steps = sorted(rows)
    return {"step": steps} | {key: [rows[step][key] for step in steps] for key in golden.FIGURES}


def peer_batches(ranks, rank, count):
    """Returns the first (tokens, labels) of TorchTitan's own loader, as lists."""
    from torchtitan.components.tokenizer import HuggingFaceTokenizer
    from torchtitan.config import JobConfig
    from torchtitan.hf_datasets.text_datasets import build_text_dataloader

    config = JobConfig()
    config.training.dataset, config.training.dataset_path = "c4_test", str(golden.CORPUS)
    config.training.local_batch_size, config.training.seq_len = 2, 64
    loader = build_text_dataloader(ranks, rank, HuggingFaceTokenizer(str(golden.TOKENIZER)), config)
    return [(inputs["input"].tolist(), labels.tolist()) for (inputs, labels), _ in zip(loader, range(count))]


def transformers_losses(model):
    """Returns the mean loss of each step of RANKS ranks."""
    import torch

    model.eval()
    per_rank = [peer_batches(golden.RANKS, rank, golden.WEIGHT_STEPS) for rank in range(golden.RANKS)]
    means = []
    with torch.no_grad():
        for step in zip(*per_rank):
            losses = []
            for tokens, labels in step:
                logits = model(torch.tensor(tokens)).logits
                losses.append(torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.tensor(labels).flatten()).item())
            means.append(sum(losses) / len(losses))
    expect(max(means) - min(means) > 1e-3, f"the batches do not differ: {means}")
    return means


def fill_by_formula(model):
    """Gives every parameter the values of golden.weight(); a tied one those of its first name."""
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = golden.weight(name, parameter.shape)
            parameter.copy_(torch.frombuffer(values, dtype=torch.float32).view(parameter.shape))


def saved_files(folder, model):
    """Returns what save_pretrained wrote of a model in several files."""
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    files = {}
    for path in sorted(folder.glob("*.safetensors")):
        shapes = {name: list(model.get_parameter(name).shape) for name, file in index["weight_map"].items() if file == path.name}
        files[path.name] = {"sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "tensors": shapes}
    return {"config": golden.read_config(folder), "index": index, "files": files}


def write(path, answers):
    path.write_text(dump(answers) + "\n", encoding="utf-8")
    print(f"{path.name}: {path.stat().st_size} bytes", flush=True)


def dump(value, depth=0):
    """Returns JSON with a line for each entry of the outer objects, so that differences can be reviewed."""
    flat = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict) or len(flat) <= 120:
        return flat
    indent = " " * (depth + 1)
    lines = [f"{indent}{json.dumps(key)}: {dump(inner, depth + 1)}" for key, inner in value.items()]
    return "{\n" + ",\n".join(lines) + f"\n{indent[1:]}}}"

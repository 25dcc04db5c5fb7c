"""Saves the weights with which a one-rank TorchTitan run of a job starts, or compares their bits with a checkpoint.

    python tests/reference/init_weights.py --config FILE [--section.key VALUE ...] [--save DIR] [--compare CHECKPOINT]

Without --save and --compare it prints the sha256 of every weight's bytes. --compare exits 1 if any differs.
"""
import argparse
import hashlib

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader

import job as job_file
import models
from llama_fsdp2 import DTYPES


def initial_weights(job):
    """Returns {name: tensor}, in registration order. debug.seed must be set: the values follow from it alone."""
    if job["debug"]["seed"] is None:
        raise SystemExit("reference: debug.seed is not set")
    dtype = DTYPES[job["training"]["dtype"]]
    model = models.build_initialized(job, job["debug"]["seed"], dtype)
    return {name: weight.detach() for name, weight in model.named_parameters(remove_duplicate=False)}


def load_weights(names, folder):
    """Returns full tensors of a DCP checkpoint, in their stored dtype."""
    stored = FileSystemReader(folder).read_metadata().state_dict_metadata
    missing = sorted(set(names) - set(stored))
    if missing:
        raise SystemExit(f"reference: {folder} lacks {', '.join(missing)}")
    weights = {name: torch.empty(stored[name].size, dtype=stored[name].properties.dtype) for name in names}
    dcp.load(weights, checkpoint_id=folder, no_dist=True)
    return weights


def differences(expected, found):
    """Returns one line for each weight whose dtype, shape or bytes differ."""
    lines = []
    for name, weight in expected.items():
        other = found[name]
        if (other.dtype, other.shape) != (weight.dtype, weight.shape):
            kinds = [f"{t.dtype} {tuple(t.shape)}" for t in (weight, other)]
            lines.append(f"{name}: {kinds[0]} expected, {kinds[1]} found")
        elif not torch.equal(weight.view(torch.uint8), other.view(torch.uint8)):
            count = (weight != other).sum().item()
            gap = (weight.double() - other.double()).abs().max().item()
            lines.append(f"{name}: {count} of {weight.numel()} values differ, by up to {gap:.3g}")
    return lines


def main():
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--config", required=True)
    parser.add_argument("--save", help="write a model-only DCP checkpoint here")
    parser.add_argument("--compare", help="a DCP checkpoint that must hold the same bits")
    options, words = parser.parse_known_args()
    weights = initial_weights(job_file.load_job(options.config, words))
    if options.save:
        dcp.save(weights, checkpoint_id=options.save, no_dist=True)
    if options.compare:
        lines = differences(weights, load_weights(weights, options.compare))
        print("\n".join(lines) or f"{len(weights)} weights are equal bit for bit")
        raise SystemExit(1 if lines else 0)
    if not options.save:
        for name, weight in weights.items():
            print(hashlib.sha256(weight.view(torch.uint8).numpy().tobytes()).hexdigest(), name)


if __name__ == "__main__":
    main()

"""Reads DCP checkpoints with torch.distributed.checkpoint at some numbers of ranks.

    python tests/reference/dcp_load.py --ranks N [N ...] --output FOLDER --checkpoints CHECKPOINT ...

Every tensor is loaded as DTensors that are split over all ranks, along the first dimension (as FSDP2 does) and along
the last; values are loaded unchanged. Rank 0 of N writes {checkpoint: {"rows": {key: tensor}, "columns": ..., "values":
...}} to FOLDER/N.pt with torch.save, with full tensors.
"""
import argparse
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from forked import run_ranks

FOREIGN = ("dataloader.dp_rank_", "titan.")  # keys of the saving ranks, and of one program only


def load(folder, mesh, dim):
    """Returns ({key: full tensor}, {key: value}) after a load into DTensors split along `dim`."""
    stored = FileSystemReader(folder).read_metadata().state_dict_metadata
    state = {}
    for key, entry in stored.items():
        if not isinstance(entry, TensorStorageMetadata):
            if not key.startswith(FOREIGN):
                state[key] = None
        elif len(entry.size) == 0:
            state[key] = torch.full((), -1, dtype=entry.properties.dtype)
        else:
            # Elements that a load skips stay -1.
            whole = torch.full(entry.size, -1, dtype=entry.properties.dtype)
            state[key] = distribute_tensor(whole, mesh, [Shard(dim % len(entry.size))])
    dcp.load(state, checkpoint_id=folder)
    tensors = {k: v.full_tensor() if hasattr(v, "full_tensor") else v for k, v in state.items() if torch.is_tensor(v)}
    return tensors, {k: v for k, v in state.items() if not torch.is_tensor(v)}


def load_all(folders, output):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    found = {}
    for folder in folders:
        rows, values = load(folder, mesh, 0)
        columns, _ = load(folder, mesh, -1)
        found[folder] = {"rows": rows, "columns": columns, "values": values}
    if dist.get_rank() == 0:
        torch.save(found, output)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ranks", nargs="+", type=int, required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--checkpoints", nargs="+", required=True)
    options = parser.parse_args()
    for ranks in options.ranks:
        run_ranks(ranks, load_all, options.checkpoints, os.path.join(options.output, f"{ranks}.pt"))


if __name__ == "__main__":
    main()

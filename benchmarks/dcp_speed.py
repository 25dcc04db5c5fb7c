"""The PyTorch side of checkpoint_speed.py: one save or load of torch.distributed.checkpoint, timed between barriers.

    torchrun --nproc-per-node N benchmarks/dcp_speed.py save|load FOLDER SHAPES

The tensors are those of the program's speed_tool, as the DTensors that FSDP2 makes of parameters: split along dim 0.
"""
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard


def content(begin, end, index):
    return ((torch.arange(begin, end) % 65521) + index).float()


def make_state(path, mesh, filled):
    rank, size = mesh.get_local_rank(), mesh.size()
    state = {}
    for index, line in enumerate(open(path)):
        shape = [int(word) for word in line.split()]
        chunk = -(-shape[0] // size)
        begin, end = min(chunk * rank, shape[0]), min(chunk * (rank + 1), shape[0])
        row = torch.Size(shape[1:]).numel()
        local = content(begin * row, end * row, index) if filled else torch.full(((end - begin) * row,), -1.0)
        stride = torch.empty(shape, device="meta").stride()
        state[str(index)] = DTensor.from_local(
            local.view(end - begin, *shape[1:]), mesh, [Shard(0)], run_check=False, shape=torch.Size(shape), stride=stride
        )
    return state


def check(state, path, mesh):
    for key, tensor in make_state(path, mesh, True).items():
        if not torch.equal(state[key].to_local(), tensor.to_local()):
            raise SystemExit(f"tensor {key} has other elements")


def main():
    action, folder, shapes = sys.argv[1:]
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    state = make_state(shapes, mesh, action == "save")
    dist.barrier()
    start = time.perf_counter()
    if action == "save":
        # Flushes to the disk, as the program does. This is the default; it is explicit because it is what is compared.
        dcp.save(state, storage_writer=FileSystemWriter(folder, sync_files=True))
    else:
        dcp.load(state, storage_reader=FileSystemReader(folder))
    dist.barrier()
    seconds = time.perf_counter() - start
    if action == "load":
        check(state, shapes, mesh)
    if dist.get_rank() == 0:
        print(f"{seconds:.6f}", flush=True)
    dist.barrier()
    sys.stdout.flush()
    # Skips the interpreter's teardown, where c10d's threads sometimes abort the process.
    os._exit(0)


if __name__ == "__main__":
    main()

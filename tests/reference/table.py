"""Many short reference runs in one start of the ranks: what the parity table compares with.

    torchrun --nproc-per-node N tests/reference/table.py ROWS.json

ROWS.json is a list of objects: config (TOML file), words (command-line overrides), init_from (DCP folder), output
(metrics file), and optionally weights (file for name -> whole tensor after the last step), trace (file for the
collectives, see trace_collectives.py), ddp (true: real DistributedDataParallel) and arithmetic (sdpa, gemm, swiglu, as
llama_fsdp2.py's options).
"""
import json
import sys

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

import job as job_file
import llama_fsdp2 as reference
import text_data
from trace_collectives import collectives_recorded


CPU = torch.device("cpu")


def run_row(row, meshes):
    job = job_file.load_job(row["config"], row["words"])
    rank, world = dist.get_rank(), dist.get_world_size()
    replicas = job["parallelism"]["data_parallel_replicate_degree"]
    if replicas not in meshes:  # a mesh makes process groups: one for all rows that are alike
        meshes[replicas] = reference.make_mesh(CPU, job["parallelism"], world)
    model = reference.build_model(job, CPU, meshes[replicas], row["init_from"], row.get("ddp", False))
    rows = reference.open_rows(row["output"], rank)
    with reference.arithmetic(**row.get("arithmetic", {})), collectives_recorded(row.get("trace")):
        reference.train(model, job, CPU, text_data.rank_batches(job, rank, world), rows)
    if "weights" not in row:
        return
    weights = reference.named_weights(model)
    whole = {name: w.full_tensor() if isinstance(w, DTensor) else w for name, w in weights.items()}
    if rank == 0:
        torch.save(whole, row["weights"])


def main():
    with open(sys.argv[1]) as file:
        rows = json.load(file)
    reference.start_ranks(CPU.type)
    meshes = {}
    for row in rows:
        run_row(row, meshes)
    reference.end_process()


if __name__ == "__main__":
    main()

"""Runs many short reference runs in one start of Python, for the integration cases to compare with.

    python tests/reference/table.py RANKS PLAN.json

PLAN.json holds "seeds" and "rows", each a list. A seed: config (TOML file), words (command-line overrides), folder (DCP
folder for the initial weights of that job). A row: config, words, output (metrics file), and optionally init_from (DCP
folder, a seed's or another; without one the weights are drawn from debug.seed), weights (file for name -> full tensor
after the last step), state (DCP folder for weights, moments and counts), main (true: the state has the names of
TorchTitan's main branch), trace (file for the collectives, see trace_collectives.py), ddp (true: real DistributedDataParallel) and arithmetic (sdpa, gemm, swiglu, as llama_fsdp2.py's
options).
"""
import json
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.tensor import DTensor

import dcp_save
import init_weights
import job as job_file
import llama_fsdp2 as reference
import text_data
from forked import run_ranks
from pipeline_parallel import Pipeline
from trace_collectives import collectives_recorded


CPU = torch.device("cpu")


def save_weights(model, path):
    weights = reference.named_weights(model)
    whole = {name: w.full_tensor() if isinstance(w, DTensor) else w for name, w in weights.items()}
    if isinstance(model, Pipeline):
        whole = model.gather(whole)
    if dist.get_rank() == 0:
        torch.save(whole, path)


def run_row(row, made):
    job = job_file.load_job(row["config"], row["words"])
    rank, world = dist.get_rank(), dist.get_world_size()
    # A mesh makes process groups, so rows with the same degrees share one.
    kinds = ("data_parallel_replicate", "tensor_parallel", "context_parallel", "pipeline_parallel")
    degrees = tuple(job["parallelism"][f"{kind}_degree"] for kind in kinds)
    if degrees not in made:
        made[degrees] = reference.make_mesh(CPU, job["parallelism"], world)
    meshes = made[degrees]
    model = reference.build_model(job, CPU, meshes, row.get("init_from"), row.get("ddp", False))
    rows = reference.open_rows(row["output"], rank)
    source = text_data.rank_batches(job, meshes.batch_rank, meshes.batch_size)
    with reference.arithmetic(**row.get("arithmetic", {})), collectives_recorded(row.get("trace")):
        optimizer = reference.train(model, job, CPU, meshes, source, rows)
    if "weights" in row:
        save_weights(model, row["weights"])
    if "state" in row:
        dcp_save.save_state(model, optimizer, job, row["state"], row.get("main", False))


def run_plan(plan):
    if dist.get_rank() == 0:
        for seed in plan["seeds"]:
            weights = init_weights.initial_weights(job_file.load_job(seed["config"], seed["words"]))
            dcp.save(weights, checkpoint_id=seed["folder"], no_dist=True)
    dist.barrier()
    made = {}
    for row in plan["rows"]:
        run_row(row, made)


def main():
    with open(sys.argv[2]) as file:
        plan = json.load(file)
    run_ranks(int(sys.argv[1]), run_plan, plan)


if __name__ == "__main__":
    main()

"""Trains with FSDP2 (see llama_fsdp2.py) and saves the full state with torch.distributed.checkpoint, in TorchTitan's keys.

    torchrun --nproc-per-node N tests/reference/dcp_save.py --folder FOLDER --config FILE [--section.key VALUE ...]
"""
import argparse
import json

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

import job as job_file
import llama_fsdp2
import text_data


def scheduler_state(job):
    """What LambdaLR keeps, of a schedule that ends with the run."""
    steps, base = job["training"]["steps"], job["optimizer"]["lr"]
    factor = llama_fsdp2.lr_factor(job["lr_scheduler"], steps)
    state = {"base_lrs": [base], "last_epoch": steps, "_step_count": steps + 1, "_is_initial": False}
    return state | {"_get_lr_called_within_step": False, "_last_lr": [base * factor(steps)]}


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--config", required=True)
    options, words = parser.parse_known_args()
    job = job_file.load_job(options.config, words)
    device = llama_fsdp2.start_ranks("cpu")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = llama_fsdp2.build_model(job, device, llama_fsdp2.make_mesh(device, job["parallelism"], world))
    rows = []
    optimizer = llama_fsdp2.train(
        model, job, device, text_data.rank_batches(job, rank, world), lambda **row: rows.append(row)
    )
    flat = StateDictOptions(flatten_optimizer_state_dict=True)
    state = llama_fsdp2.named_weights(model)
    state["optimizer"] = get_optimizer_state_dict(model, optimizer, options=flat)
    state["lr_scheduler"] = scheduler_state(job)
    state["train_state"] = {"step": job["training"]["steps"], "ntokens_seen": rows[-1]["tokens_seen"] // world}
    dcp.save(state, checkpoint_id=options.folder)
    if rank == 0:
        print(json.dumps(rows[-1]))
    llama_fsdp2.end_process()


if __name__ == "__main__":
    main()

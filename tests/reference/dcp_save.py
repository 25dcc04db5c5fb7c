"""Saves the full state of an FSDP2 run (see llama_fsdp2.py) with torch.distributed.checkpoint, in TorchTitan's keys."""
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

import llama_fsdp2


MAIN_NAMES = {".attention.w" + letter: ".attention.qkv_linear.w" + letter for letter in "qkv"} | {".output.": ".lm_head."}


def main_key(key):
    """Returns a key with the names that modules have on TorchTitan's main branch (its models/common/decoder.py and
    attention.py in August 2026)."""
    key = "." + key
    for old, new in MAIN_NAMES.items():
        key = key.replace(old, new)
    return key[1:]


def scheduler_state(job):
    """Returns the state that LambdaLR keeps, for a schedule that ends with the run."""
    steps, base = job["training"]["steps"], job["optimizer"]["lr"]
    factor = llama_fsdp2.lr_factor(job["lr_scheduler"], steps)
    state = {"base_lrs": [base], "last_epoch": steps, "_step_count": steps + 1, "_is_initial": False}
    return state | {"_get_lr_called_within_step": False, "_last_lr": [base * factor(steps)]}


def save_state(model, optimizer, job, folder, main=False):
    """Saves after the last step of a job with one microbatch per step. A rank counts its own tokens. `main`: with the
    names and the entries of TorchTitan's main branch."""
    training = job["training"]
    flat = StateDictOptions(flatten_optimizer_state_dict=True)
    state = llama_fsdp2.named_weights(model)
    state["optimizer"] = get_optimizer_state_dict(model, optimizer, options=flat)
    state["lr_scheduler"] = scheduler_state(job)
    tokens = training["steps"] * training["local_batch_size"] * training["seq_len"]
    state["train_state"] = {"step": training["steps"], "ntokens_seen": tokens}
    if main:
        optimizer_state = {main_key(key): value for key, value in state.pop("optimizer").items()}
        state = {main_key(key): value for key, value in state.items()}
        state |= {"optimizer": optimizer_state, "lr_scheduler": {"last_epoch": training["steps"]}}
    dcp.save(state, checkpoint_id=folder)

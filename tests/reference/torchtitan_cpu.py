"""Starts TorchTitan 0.2.2's trainer on CPU and Gloo, for tests/golden/make.py.

    torchrun --nproc-per-node N tests/reference/torchtitan_cpu.py --job.config_file FILE [--section.key VALUE ...]

Needs a Python that has torchtitan. TorchTitan takes its device from an accelerator; here torch.cpu replaces it, with
constants for what only its memory display reads. Nothing that is computed changes: Gloo lacks NCCL's sum with a factor,
and gets the plain sum if the factor is one; and PyTorch's ring attention has no kernel for CPUs, and gets one
(context_parallel.py). $TITAN_PEER_ARGS (JSON: fields of the model's arguments) are the sizes of
the flavor "debugmodel" of the job's model.
"""
import dataclasses
import json
import os
import types

import torch
import torch._utils
import torch.distributed as dist

import context_parallel


def stand_in_for_device():
    torch._utils._get_available_device_type = lambda: "cpu"
    cpu = torch.cpu
    cpu.get_device_name = lambda device=None: "CPU"
    cpu.get_device_properties = lambda device=None: types.SimpleNamespace(total_memory=1 << 34)
    cpu.memory_stats = lambda device=None: {}
    cpu.reset_peak_memory_stats = cpu.empty_cache = lambda: None


def stand_in_for_nccl():
    def scaled_sum(factor):
        if factor != 1:
            raise RuntimeError(f"Gloo cannot scale a sum by {factor}")
        return dist.ReduceOp.SUM

    plain_barrier = dist.barrier

    def barrier(group=None, async_op=False, device_ids=None):
        return plain_barrier(group, async_op)

    dist._make_nccl_premul_sum, dist.barrier = scaled_sum, barrier


def emulate_float8():
    """TorchTitan forgets quantize.linear.float8.emulate where a recipe is named. A CPU needs it."""
    try:
        from torchao.float8 import Float8LinearConfig
    except ImportError:
        return
    of_recipe = Float8LinearConfig.from_recipe_name
    Float8LinearConfig.from_recipe_name = staticmethod(lambda name: dataclasses.replace(of_recipe(name), emulate=True))


def train():
    """Runs the trainer; torchtitan_gpu.py calls it, too."""
    from torchtitan import train
    from torchtitan.config import ConfigManager
    from torchtitan.protocols.train_spec import get_train_spec

    sizes = json.loads(os.environ.get("TITAN_PEER_ARGS", "{}"))
    flavors = get_train_spec(ConfigManager().parse_args().model.name).model_args
    flavors["debugmodel"] = dataclasses.replace(flavors["debugmodel"], **sizes)
    train.main(train.Trainer)


if __name__ == "__main__":
    stand_in_for_device()
    stand_in_for_nccl()
    context_parallel.register_cpu_kernel()
    emulate_float8()
    train()

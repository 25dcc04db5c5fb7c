"""Starts TorchTitan 0.2.2 as tests/reference/torchtitan_cpu.py does, and counts the torch operators of its third step.

    torchrun ... benchmarks/torchtitan_kernels.py --job.config_file FILE [...]

Writes {operator: count} of rank 0 to $COUNTS: operators as they reach a backend, without views and without empty
memory, as the simulated device counts them. What CUDA does in one kernel counts once: the fused RMSNorm has no kernel
for the CPU, and gets one that is made of other operators.
"""
import collections
import json
import os
import pathlib
import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/reference"))
import torchtitan_cpu  # noqa: E402

STEP = 3
LAUNCHES_NOTHING = ("aten::empty", "aten::new_empty", "aten::_reshape_alias", "aten::_unsafe_view", "aten::set_", "profiler::")


def launches(schema):
    is_view = any(each.alias_info is not None and not each.alias_info.is_write for each in schema.returns)
    return not is_view and not schema.name.startswith(LAUNCHES_NOTHING)


class Count(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.kernels = collections.Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if launches(function._schema):
            self.kernels[function._schema.name] += 1
        return function(*args, **(kwargs or {}))


def fuse_rms_norm():
    library = torch.library.Library("aten", "IMPL", "CPU")

    def forward(x, shape, weight=None, eps=None):
        wide = x.float()
        rstd = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + (eps or torch.finfo(wide.dtype).eps))
        out = wide * rstd
        return (out if weight is None else out * weight.float()).to(x.dtype), rstd

    def backward(grad, x, shape, rstd, weight, wanted):
        normed, g = x.float() * rstd, grad.float()
        of_weight = (g * normed).flatten(0, -2).sum(0).to(weight.dtype)
        g = g * weight.float()
        return ((g - normed * (g * normed).mean(-1, keepdim=True)) * rstd).to(x.dtype), of_weight

    library.impl("_fused_rms_norm", forward)
    library.impl("_fused_rms_norm_backward", backward)
    return library


def count_a_step():
    from torchtitan.train import Trainer

    plain = Trainer.train_step

    def train_step(self, data_iterator):
        if self.step != STEP:
            return plain(self, data_iterator)
        with Count() as count:
            plain(self, data_iterator)
        if torch.distributed.get_rank() == 0:
            pathlib.Path(os.environ["COUNTS"]).write_text(json.dumps(count.kernels))

    Trainer.train_step = train_step


if __name__ == "__main__":
    fused = fuse_rms_norm()
    torchtitan_cpu.stand_in_for_device()
    torchtitan_cpu.stand_in_for_nccl()
    count_a_step()
    torchtitan_cpu.train()

"""Low-rank adapters (LoRA, arXiv:2106.09685) for the reference models, in plain PyTorch."""
import fnmatch
import math

import torch
import torch.nn.functional as F
from torch import nn


class LoraLinear(nn.Linear):
    """y = x W^T + alpha / rank * dropout(x) A^T B^T. Only A and B are trained."""

    def __init__(self, base, options):
        super().__init__(base.in_features, base.out_features, bias=False, device=base.weight.device, dtype=base.weight.dtype)
        rank, self.dropout = options["rank"], options["dropout"]
        self.scale = (rank if options["alpha"] is None else options["alpha"]) / rank
        self.lora_A = nn.Parameter(torch.empty(rank, self.in_features, device=base.weight.device))
        self.lora_B = nn.Parameter(torch.empty(self.out_features, rank, device=base.weight.device))

    def forward(self, x):
        low = F.linear(F.dropout(x, self.dropout, self.training), self.lora_A)
        return torch.add(F.linear(x, self.weight), F.linear(low, self.lora_B), alpha=self.scale)


def adapt(model, options, dtype, base_dtype):
    """Puts adapters into a model on the meta device, if the options have a rank, and freezes everything else."""
    if not options["rank"]:
        return model
    for name, module in list(model.named_modules()):
        is_target = any(fnmatch.fnmatchcase(name, target) or name.endswith("." + target) for target in options["targets"])
        if isinstance(module, nn.Linear) and name != "output" and is_target:
            setattr(model.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2], LoraLinear(module, options))
    for name, parameter in model.named_parameters():
        is_adapter = name.endswith((".lora_A", ".lora_B"))
        parameter.requires_grad_(is_adapter)
        parameter.data = parameter.data.to(dtype if is_adapter else base_dtype)
    return model


@torch.no_grad()
def init_adapters(model):
    for module in model.modules():
        if isinstance(module, LoraLinear):
            nn.init.kaiming_uniform_(module.lora_A, a=math.sqrt(5))
            nn.init.zeros_(module.lora_B)

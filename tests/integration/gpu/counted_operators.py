"""Calls a few operators on a device whose bytes are known by hand, for the case null_cuda_counts_bytes.

    LD_PRELOAD=.../libtitan_null_cuda.so NULL_CUDA_OBSERVER=.../libtitan_operator_bytes.so NULL_CUDA_OPERATORS=FOLDER \\
        python counted_operators.py TIMES

TIMES is how often each is called. What this script asks for once more is not part of any of them.
"""
import sys

import torch

device = {"device": "cuda"}
torch.zeros(1, **device)  # the first launch: from here on calls are counted
x, y = torch.empty(64, 32, **device), torch.empty(64, 32, **device)
row, bias = torch.empty(1, 32, **device), torch.empty(16, **device)
batch = torch.empty(2, 3, 32, **device)
weight = torch.empty(16, 32, **device, requires_grad=True)
lists = [torch.empty(10, **device), torch.empty(5, **device)], [torch.empty(10, **device), torch.empty(5, **device)]

for _ in range(int(sys.argv[1])):
    x.t()[3:].detach().unsqueeze(0).view(-1, 64)  # views
    torch.empty_like(x).expand(2, 64, 32)
    torch.ones(64, 32) + 1  # on the host
    torch.mul(x, row.expand(64, 32))
    x.add_(y)
    x.to(torch.bfloat16)
    torch.sub(x, y, out=torch.empty(0, **device))  # gets its size in the call
    torch.cat([x[:, :8], y[:, :8]])
    torch._foreach_copy_(*lists)
    weight.grad = None
    # A product of three operators, of which one launches; its backward runs in a thread of its own.
    torch.nn.functional.linear(batch, weight, bias).backward(torch.empty(2, 3, 16, **device))

"""Context parallelism of the reference models by PyTorch's own ring attention.

PyTorch has no ring version of the attention kernel of CPUs. register_cpu_kernel() makes it one of the kernels that its
ring calls: the ring, its order and its way to merge results are PyTorch's, for the reference and for TorchTitan
(torchtitan_cpu.py).
"""
import contextlib

import torch
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental import _attention as public
from torch.distributed.tensor.experimental._context_parallel import _attention as ring

SEQUENCE_DIM = 2  # of queries, keys and values, [B, heads, T, E]
FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def call_ring(kernel, positional, named):
    """Calls PyTorch's ring with the kernel, on what one rank has of the DTensors among its arguments."""
    names = (argument.name for argument in kernel._schema.arguments)
    arguments = {**dict(zip(names, positional)), **named}
    query = arguments["query"]
    local = {name: value._local_tensor if isinstance(value, DTensor) else value for name, value in arguments.items()}
    group = query.device_mesh.get_group()
    if kernel is FORWARD:
        results = ring._templated_ring_attention(group, SEQUENCE_DIM, kernel, **local)
    else:
        results = ring._templated_ring_attention_backward(group, SEQUENCE_DIM, kernel, grad_out_name="grad_out", **local)
    return tuple(DTensor.from_local(result, query.device_mesh, query.placements, run_check=False) for result in results)


def register_cpu_kernel():
    """Must be called before PyTorch's dispatcher for context parallelism is enabled."""
    ring.custom_ops |= {FORWARD: call_ring, BACKWARD: call_ring}


@contextlib.contextmanager
def rows_split(mesh, parallelism, tokens, labels):
    """Within it, attention is PyTorch's ring. Yields what this rank has of tokens and labels, [B, T / ranks] each, and
    the positions of its tokens, [T / ranks]. mesh: None, or of one dimension; with None all is as without this context,
    and the positions are None.
    """
    if mesh is None:
        yield tokens, labels, None
        return
    balancer = parallelism["context_parallel_load_balancer"]
    if balancer not in ("headtail", None):
        raise SystemExit(f"reference: PyTorch's ring cannot have the load balancer '{balancer}'")
    register_cpu_kernel()
    ring._cp_options.enable_load_balance = balancer == "headtail"
    public.set_rotate_method(parallelism["context_parallel_rotate_method"])
    buffers = [tokens.clone(), labels.clone(), torch.arange(tokens.shape[1], device=tokens.device)]
    with context_parallel(mesh, buffers=buffers, buffer_seq_dims=[1, 1, 0], no_restore_buffers=set(buffers)):
        yield buffers

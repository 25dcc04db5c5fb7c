"""Tensor parallelism of the reference models by PyTorch's own parallelize_module, as TorchTitan applies it to Llama.

TorchTitan keeps the heads of Qwen3 in DTensors from the projections to the attention, for which PyTorch has no CPU
kernel. Here they are local tensors, as Llama's: the same numbers.
"""
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

# Between blocks each rank has its part of the sequence.
SEQUENCE = Shard(1)
# Within attention, [B, T, heads, E], each rank has its heads. Their norms have the same weights on all ranks.
HEADS_DIM = 2


def block_plan(block):
    # The rotary table, the second input, and the mask stay unchanged.
    gather_sequence = dict(input_layouts=(SEQUENCE, None, None), desired_input_layouts=(Replicate(), None, None))
    plan = {
        "attention_norm": SequenceParallel(),
        "attention": PrepareModuleInput(**gather_sequence),
        "attention.wq": ColwiseParallel(),
        "attention.wk": ColwiseParallel(),
        "attention.wv": ColwiseParallel(),
        "attention.wo": RowwiseParallel(output_layouts=SEQUENCE),
        "ffn_norm": SequenceParallel(),
        "feed_forward": PrepareModuleInput(input_layouts=(SEQUENCE,), desired_input_layouts=(Replicate(),)),
        "feed_forward.w1": ColwiseParallel(),
        "feed_forward.w2": RowwiseParallel(output_layouts=SEQUENCE),
        "feed_forward.w3": ColwiseParallel(),
    }
    for name in ("q_norm", "k_norm"):
        if hasattr(block.attention, name):
            plan[f"attention.{name}"] = SequenceParallel(sequence_dim=HEADS_DIM, use_local_output=True)
    return plan


def parallelize(model, mesh, keeps_logits_split):
    """Applies the plan to a model or a stage of one. `mesh`: one dimension. `keeps_logits_split`: for a loss within torch's loss_parallel()."""
    logits = Shard(-1) if keeps_logits_split else Replicate()
    plan = {
        "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=SEQUENCE),
        "norm": SequenceParallel(),
        "output": ColwiseParallel(
            input_layouts=SEQUENCE, output_layouts=logits, use_local_output=not keeps_logits_split
        ),
    }
    parallelize_module(model, mesh, {name: style for name, style in plan.items() if getattr(model, name) is not None})
    for block in model.layers.values():
        parallelize_module(block, mesh, block_plan(block))

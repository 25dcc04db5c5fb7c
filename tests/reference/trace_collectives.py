"""Records the collectives that FSDP2 starts, in the program's format.

Rank 0 writes one line each: kind, "-" for the group, elements in, elements out, dtype. Reductions of single numbers
(losses, counts of tokens) are skipped; norms go through functional collectives, which are not recorded.
"""
import contextlib

import torch.distributed as dist

KINDS = {"all_gather": "all_gather_into_tensor", "reduce_scatter": "reduce_scatter_tensor", "all_reduce": "all_reduce"}


def recording(kind, original, lines):
    """Returns `original` with a line for every call. all_reduce works in place; the others take (output, input)."""

    def call(*args, **kwargs):
        tensors = [kwargs.get("tensor", args[0] if args else None)]
        if kind != "all_reduce":
            tensors = [kwargs.get(key, args[i] if i < len(args) else None) for i, key in enumerate(("output", "input"))]
            tensors = [kwargs.get(f"{key}_tensor", t) for key, t in zip(("output", "input"), tensors)]
        output, source = tensors[0], tensors[-1]
        if source.numel() > 1:
            dtype = str(source.dtype).removeprefix("torch.")
            lines.append(f"{kind} - {source.numel()} {output.numel()} {dtype}")
        return original(*args, **kwargs)

    return call


@contextlib.contextmanager
def collectives_recorded(path):
    """Writes `path` on rank 0 when the block ends; with None it records nothing."""
    if path is None:
        yield
        return
    lines, originals = [], {}
    for kind, name in KINDS.items():
        originals[name] = getattr(dist, name)
        setattr(dist, name, recording(kind, originals[name], lines))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(dist, name, original)
    if dist.get_rank() == 0:
        with open(path, "w") as file:
            file.writelines(line + "\n" for line in lines)

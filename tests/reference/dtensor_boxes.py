"""Prints boxes of torch.distributed.tensor for many shapes, meshes and placements, as a table for
tests/distributed/tensor_parallel/dtensor_test.cpp.

    .venv/bin/python tests/reference/dtensor_boxes.py > tests/distributed/tensor_parallel/dtensor_boxes.txt

A row: global shape | mesh shape | placements (R, S<dim>, SS<dim>/<split factor>) | coordinate | offset | local shape.

Every row is computed twice: by torch's own compute_local_shape_and_global_offset, and by torch.chunk on the numbers of
a tensor's rows, in the order of the splits. The two must agree, with two exceptions. An empty piece has no rows: torch
gives the global size as its offset. And if a StridedShard's tensor dim does not divide by its split factor, torch's
formula joins pieces of unequal length and cuts them at the wrong place; then the table has what fully_shard really
leaves on the rank, which is chunk of chunk (torch/distributed/fsdp/_fully_shard/_fsdp_param.py).
"""
import itertools

import torch
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import _StridedShard


def chunk_or_empty(rows, parts, index):
    chunks = torch.chunk(rows, parts)
    return chunks[index] if index < len(chunks) else rows[:0]


def chunked_box(shape, mesh, coordinate, placements):
    offset, local = [], []
    for d, size in enumerate(shape):
        order = []  # mesh axes, first cut first
        for m in reversed(range(len(mesh))):
            if isinstance(placements[m], _StridedShard) and placements[m].dim == d:
                order.append(m)
            elif isinstance(placements[m], Shard) and placements[m].dim == d:
                order.insert(0, m)
        rows = torch.arange(size)
        for m in order:
            rows = chunk_or_empty(rows, mesh[m], coordinate[m])
        offset.append(int(rows[0]) if len(rows) else size)
        local.append(len(rows))
    return tuple(local), tuple(offset)


def is_uneven(shape, placements):
    return any(isinstance(p, _StridedShard) and shape[p.dim] % p.split_factor for p in placements)


def short(placement):
    if isinstance(placement, _StridedShard):
        return f"SS{placement.dim}/{placement.split_factor}"
    return f"S{placement.dim}" if isinstance(placement, Shard) else "R"


def all_placements(ndim, mesh):
    """Yields every mix of Replicate and Shard, and StridedShard if a mesh axis to the right splits the same tensor
    dim."""
    kinds = [Replicate()] + [Shard(d) for d in range(ndim)] + [("strided", d) for d in range(ndim)]
    for choice in itertools.product(kinds, repeat=len(mesh)):
        placements = []
        for m in reversed(range(len(mesh))):
            kind = choice[m]
            if not isinstance(kind, tuple):
                placements.insert(0, kind)
                continue
            factor = 1
            for other, size in zip(placements, mesh[m + 1:]):
                if not isinstance(other, Replicate) and other.dim == kind[1]:
                    factor *= size
            if factor == 1:
                break  # no different from Shard
            placements.insert(0, _StridedShard(kind[1], split_factor=factor))
        else:
            yield tuple(placements)


def join(numbers):
    return ",".join(str(n) for n in numbers)


def main():
    cases = [(shape, mesh) for shape in [(1,), (3,), (7,), (8,), (13,)] for mesh in [(1,), (2,), (3,), (4,)]]
    cases += [((5, 3), (2,)), ((6, 8), (3,))]
    cases += [(shape, mesh) for shape in [(3,), (8,), (9,), (17,)] for mesh in [(2, 2), (2, 3), (3, 2), (4, 2), (1, 2)]]
    cases += [(shape, mesh) for shape in [(5, 3), (8, 12)] for mesh in [(2, 2), (3, 2)]]
    cases += [((24,), (2, 3, 2)), ((11,), (2, 2, 2))]
    for shape, mesh in cases:
        for placements in all_placements(len(shape), mesh):
            for coordinate in itertools.product(*(range(n) for n in mesh)):
                box = chunked_box(shape, mesh, coordinate, placements)
                theirs = _compute_local_shape_and_global_offset(shape, mesh, list(coordinate), placements)
                if theirs != box and not is_uneven(shape, placements):
                    raise SystemExit(f"{shape} {mesh} {coordinate} {placements}: torch {theirs}, by chunks {box}")
                local, offset = box
                print(" | ".join([join(shape), join(mesh), join(map(short, placements)), join(coordinate),
                                  join(offset), join(local)]))


if __name__ == "__main__":
    main()

"""PyTorch's own pipeline schedules, as text: the reference for the program's (src/pipeline).

    python pipeline_orders.py < QUESTIONS > ANSWERS

A question is [NAME, ranks, stages per rank, microbatches]; QUESTIONS and ANSWERS are JSON lists. An answer has "order" and
"lowered", the actions of each rank without and with communication, or "refused", the error of PyTorch's class.
"""
import itertools
import json
import logging
import sys
import types

from torch.distributed.pipelining import schedules
from torch.distributed.pipelining._utils import generate_stage_to_rank_mapping

logging.disable(logging.WARNING)


class RecordingStage:
    """Stands for a stage of a single-stage schedule: writes down what it is asked to compute, and exchanges nothing."""

    def __init__(self, rank, ranks):
        self.stage_index, self.num_stages, self.group_rank, self.group_size = rank, ranks, rank, ranks
        self.is_first, self.is_last, self.submod, self.has_backward = rank == 0, False, None, True
        self.actions = []

    def forward_one_chunk(self, microbatch, *_, **__):
        self.actions.append(schedules._Action(self.stage_index, schedules.F, microbatch))

    def backward_one_chunk(self, microbatch, **_):
        self.actions.append(schedules._Action(self.stage_index, schedules.B, microbatch))

    def __getattr__(self, name):
        if name.startswith("get_"):
            return lambda *_: []
        return lambda *_: None


def single_stage_orders(made, ranks, microbatches):
    """The orders that the step itself runs: the listing that 1F1B makes of itself differs from it."""
    orders = {}
    for rank in range(ranks):
        stage = RecordingStage(rank, ranks)
        schedule = made(stage, n_microbatches=microbatches, loss_fn=lambda *_: None)
        schedule._stage_forward_initialized = schedule._stage_backward_initialized = True
        schedule._step_microbatches()
        orders[rank] = stage.actions
    return orders


def answer(name, ranks, per_rank, microbatches):
    made = schedules.get_schedule_class(name)
    num_stages = ranks * per_rank
    style = "v" if name in ("ZBVZeroBubble", "DualPipeV") else "loop"
    mapping = generate_stage_to_rank_mapping(ranks, num_stages, style)
    try:
        if issubclass(made, schedules.PipelineScheduleSingle):
            orders = single_stage_orders(made, ranks, microbatches)
        else:
            own = [stage for stage, rank in mapping.items() if rank == 0]
            facts = {"group_size": ranks, "group_rank": 0, "num_stages": num_stages, "submod": None, "is_last": False}
            stages = [types.SimpleNamespace(stage_index=stage, **facts) for stage in own]
            orders = made(stages, n_microbatches=microbatches, loss_fn=lambda *_: None).pipeline_order
        orders = {rank: [action for action in orders[rank] if action is not None] for rank in range(ranks)}
        prepared = {rank: schedules._add_reduce_grad(gathered(order), microbatches) for rank, order in orders.items()}
        lowered = schedules._add_send_recv(prepared, mapping.__getitem__, num_stages)
    except (AssertionError, ValueError) as error:
        return {"refused": str(error)}
    return {"order": as_text(orders), "lowered": as_text(lowered)}


def gathered(order):
    """Adds UNSHARD and RESHARD. Stages that are freed together come out of a set, in no order; here they ascend."""
    runs = itertools.groupby(schedules._add_unshard_reshard(order), lambda action: action.computation_type == schedules.RESHARD)
    return [action for is_freed, run in runs for action in (sorted(run, key=lambda action: action.stage_index) if is_freed else run)]


def as_text(orders):
    return [[str(action) for action in orders[rank]] for rank in sorted(orders)]


if __name__ == "__main__":
    json.dump([answer(*question) for question in json.load(sys.stdin)], sys.stdout)

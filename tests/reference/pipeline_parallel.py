"""Pipeline parallelism of the reference models by PyTorch's own stages and schedules, as TorchTitan applies them to Llama.

TorchTitan propagates the sum of a step's losses and clips that; here, as in the program, each loss is divided by the
step's tokens first. TorchTitan has no tied weights in a pipeline; here both stages add their gradients.
"""
import copy

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, schedules
from torch.distributed.tensor import DTensor

V_SCHEDULES = ("zbvzerobubble", "dualpipev")  # the ranks' first stages ascend, and their second ones descend


class Stage(PipelineStage):
    def _get_init_p2p_neighbors_ops(self):
        # It sets up NCCL's connections. Gloo has them, and cannot send to itself, as a V's last rank would.
        return []


def split_layers(parallelism, num_layers, is_single_stage):
    """Returns the names of each stage's modules, the layers as "layers.N"."""
    if parallelism["module_fqns_per_model_part"] is not None:
        return parallelism["module_fqns_per_model_part"]
    first_less, last_less = (parallelism[f"pipeline_parallel_{end}_stage_less_layers"] for end in ("first", "last"))
    weighed = num_layers + first_less + last_less
    per_stage = parallelism["pipeline_parallel_layers_per_stage"]
    ranks = parallelism["pipeline_parallel_degree"]
    stages = -(-weighed // per_stage) if per_stage else ranks * (1 if is_single_stage else 2)
    names = iter([f"layers.{i}" for i in range(num_layers)])
    split = []
    for stage in range(stages):
        share = weighed // stages + (stage < weighed % stages)
        share -= first_less if stage == 0 else 0
        share -= last_less if stage == stages - 1 else 0
        split.append([next(names) for _ in range(share)])
    split[0].insert(0, "tok_embeddings")
    split[-1] += ["norm", "output"]
    return split


def keep_modules(model, names):
    """Removes all modules of a whole model but those of a stage."""
    for name in ("tok_embeddings", "norm", "output"):
        if name not in names:
            setattr(model, name, None)
    for index in list(model.layers):
        if f"layers.{index}" not in names:
            del model.layers[index]


class Pipeline(torch.nn.Module):
    """The stages that one rank has of a model, with the names of the whole model, and the schedule that runs them."""

    def __init__(self, model, job, group, shard):
        """model: whole, as every rank has it. shard: a function that is called with each stage."""
        super().__init__()
        parallelism, self.group, self.args = job["parallelism"], group, model.args
        if model.args.attn_mask_type == "block_causal":
            raise SystemExit("reference: later stages of a pipeline have no tokens in which documents end")
        self.make_schedule = schedules.get_schedule_class(parallelism["pipeline_parallel_schedule"])
        self.is_single_stage = issubclass(self.make_schedule, schedules.PipelineScheduleSingle)
        self.num_parts = job["training"]["local_batch_size"] // parallelism["pipeline_parallel_microbatch_size"]
        split = split_layers(parallelism, model.args.n_layers, self.is_single_stage)
        self.num_stages, ranks, rank = len(split), group.size(), group.rank()
        self.indices = list(range(rank, self.num_stages, ranks))
        if parallelism["pipeline_parallel_schedule"].lower() in V_SCHEDULES:
            self.indices = [rank, self.num_stages - 1 - rank]
        self.parts = torch.nn.ModuleList()
        for index in self.indices:
            part = copy.deepcopy(model)
            keep_modules(part, split[index])
            shard(part)
            part.register_forward_pre_hook(lambda _, inputs, __: (inputs, {"positions": self.positions}), with_kwargs=True)
            self.parts.append(part)
        self.positions = self.schedule = None

    def named_parameters(self, *_, **options):
        for part in self.parts:
            yield from part.named_parameters(**options)

    @property
    def has_loss(self):
        return self.num_stages - 1 in self.indices

    def forward_backward(self, tokens, labels, positions, loss_of, device):
        """Accumulates gradients of a batch. Returns the sum of its losses, on ranks without the last stage 0."""
        if self.schedule is None:
            stages = [
                Stage(part, index, self.num_stages, device, group=self.group) for part, index in zip(self.parts, self.indices)
            ]
            self.schedule = self.make_schedule(
                stages[0] if self.is_single_stage else stages,
                n_microbatches=self.num_parts, loss_fn=loss_of, scale_grads=False,
            )  # fmt: skip
        self.positions = positions
        inputs, losses = [tokens] if 0 in self.indices else [], []
        named = {"target": labels, "losses": losses} if self.has_loss else {}
        self.schedule.step(*inputs, **named, return_outputs=False)
        losses = [loss.full_tensor() if isinstance(loss, DTensor) else loss for loss in losses]
        return torch.stack(losses).sum().detach() if losses else torch.zeros((), device=device)

    def tied(self):
        """Returns this rank's parameter that another rank has, too, or None."""
        if not self.args.enable_weight_tying:
            return None
        names = {0: "tok_embeddings.weight", self.num_stages - 1: "output.weight"}
        return next((dict(self.named_parameters())[names[index]] for index in self.indices if index in names), None)

    def add_tied_gradients(self):
        parameter = self.tied()
        if parameter is None:
            return
        last = (self.num_stages - 1) % self.group.size()
        peer = 0 if self.group.rank() == last else last
        mine = parameter.grad.to_local()
        theirs, sent = torch.empty_like(mine), mine.clone()
        requests = dist.batch_isend_irecv([
            dist.P2POp(dist.isend, sent, group_peer=peer, group=self.group),
            dist.P2POp(dist.irecv, theirs, group_peer=peer, group=self.group),
        ])  # fmt: skip
        for request in requests:
            request.wait()
        mine.add_(theirs)

    def counted(self, parameters):
        """Returns those of this rank's parameters that the gradient's norm counts here: of a tied one, the embedding."""
        copied = None if 0 in self.indices else self.tied()
        return [parameter for parameter in parameters if parameter is not copied]

    def gather(self, values):
        """Returns the dict of all ranks' entries on the first one."""
        found = [None] * self.group.size()
        dist.all_gather_object(found, values, group=self.group)
        return {name: value for part in found for name, value in part.items()}

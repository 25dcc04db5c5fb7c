"""Tests parallelism.fsdp_wrap: other groups of parameters exchange the same numbers, and the dry run shows them."""
from cases_dry_run import dry_run_of
from fixtures import QWEN3_MODEL, SMALL_MODEL, write_job
from harness import case, check_identical, expect, rows_by_step, run

STEPS = 3
KEYS = ("loss", "max_loss", "grad_norm", "lr", "tokens_seen")
WRAPS = {
    "every module": "size:1",
    "large modules": "size:20000",
    "the root alone": "size:1000000000",
    "halves of blocks": "layers.*.attention,layers.*.feed_forward,output",
    "nested": "layers.*,layers.*.attention.w*,tok_embeddings,norm,output",
}
FP32 = ["--training.mixed_precision_param", "float32"]
BF16 = ["--training.mixed_precision_reduce", "bfloat16"]


def rows_of(context, ranks, name, words, template=SMALL_MODEL, env=None):
    name = name.replace(" ", "_").replace(",", "")
    run(context, ranks, ["--config", write_job(context, name, template, STEPS), *words], name=name, env=env)
    return rows_by_step(context.dump(name) / "metrics.jsonl", exact=True)


def compare(context, ranks, modes, wraps, template=SMALL_MODEL, env=None):
    for mode, words in modes.items():
        plain = rows_of(context, ranks, mode, words, template, env)
        for name in wraps:
            wrapped = rows_of(context, ranks, f"{mode} {name}", [*words, "--parallelism.fsdp_wrap", WRAPS[name]], template, env)
            check_identical(wrapped, plain, KEYS, f"{mode}, {name}, {ranks} ranks")


@case(120, ranks=[1, 2], quick=[2], wide=["1"])
@case(120, tier="long", ranks=[4])
def wrap_changes_no_number(context, ranks):
    """Losses and gradient norms of any grouping are those of groups by block, to the last bit, in float32 and with
    gradients reduced in bfloat16."""
    compare(context, ranks, {"fp32": FP32, "bf16": BF16}, WRAPS)


@case(120, tier="wide")
def wrap_over_sockets(context):
    """The same without shared memory, where Gloo's own collectives sum."""
    compare(context, 4, {"fp32": FP32, "bf16": BF16}, ["every module", "nested"], env={"TITAN_SHARED_MEMORY": "0"})


@case(240, tier="wide")
def wrap_in_every_mode(context):
    """Recomputed blocks, resharding rules, replicas, tensor parallelism and accumulation work with other groups."""
    selective = ["--activation_checkpoint.mode", "selective", "--activation_checkpoint.selective_ac_option"]
    compare(context, 2, {
        "recomputed": ["--activation_checkpoint.mode", "full"],
        "recomputed by op": [*selective, "op"],
        "kept": ["--parallelism.fsdp_reshard_after_forward", "never"],
        "freed": ["--parallelism.fsdp_reshard_after_forward", "always"],
        "accumulated": ["--training.global_batch_size", 8],
        "data parallel": ["--parallelism.data_parallel_replicate_degree", 2, "--parallelism.data_parallel_shard_degree", 1],
        "tensor": ["--parallelism.tensor_parallel_degree", 2],
        "tensor, overlapped": ["--parallelism.tensor_parallel_degree", 2, "--parallelism.enable_async_tensor_parallel"],
    }, ["large modules", "nested"])  # fmt: skip
    compare(context, 4, {
        "replicas": ["--parallelism.data_parallel_replicate_degree", 2],
        "neighbors": ["--parallelism.fsdp_reshard_after_forward", 2],
        "tensor and shards": ["--parallelism.tensor_parallel_degree", 2, "--activation_checkpoint.mode", "full"],
    }, ["nested"])  # fmt: skip


@case(90)
def wrap_of_tied_weights(context):
    """A tied embedding and output projection stay one group, wherever a policy puts them."""
    compare(context, 2, {"tied": FP32}, ["every module", "the root alone", "halves of blocks", "nested"], QWEN3_MODEL)


@case(60, processors=1)
def dry_run_shows_groups(context):
    """--dry-run lists the groups, their bytes and a step's messages, which follow from the groups."""
    words = ["--config", write_job(context, "small"), "--world-size", 2, "--training.device", "cpu"]
    words += ["--activation_checkpoint.mode", "none"]
    found, _ = dry_run_of(context, "block", *words)
    names = [group["name"] for group in found["groups"]]
    expect(names == ["tok_embeddings", "layers.0", "layers.1", "norm, output"], f"{names}")
    expect(sum(group["parameters"] for group in found["groups"]) == found["parameters"], f"{found}")
    expect(all(group["gathered_bytes"] == 2 * group["parameters"] for group in found["groups"]), f"{found}")  # bfloat16

    def messages(of, kind):
        return next(each for each in of["messages_per_step"] if each["kind"] == kind)

    # Each group is gathered for forward, and for backward unless it is the last one; its gradients are reduced once.
    expect(messages(found, "all_gather")["count"] == 7 and messages(found, "reduce_scatter")["count"] == 4, f"{found}")
    bytes_of = {group["name"]: group["gathered_bytes"] for group in found["groups"]}
    expect(messages(found, "all_gather")["bytes"] == 2 * sum(bytes_of.values()) - bytes_of["norm, output"], f"{found}")
    accumulated, _ = dry_run_of(context, "accumulated", *words, "--training.global_batch_size", 16)
    for kind in ("all_gather", "reduce_scatter"):
        expect(messages(accumulated, kind)["count"] == 4 * messages(found, kind)["count"], f"{accumulated}")

    words += ["--parallelism.fsdp_wrap", "layers.*.attention,layers.*.feed_forward"]
    halves, _ = dry_run_of(context, "halves", *words)
    names = [group["name"] for group in halves["groups"]]
    parts = [f"layers.{layer}.{part}" for layer in (0, 1) for part in ("attention", "feed_forward")]
    expect(names == ["the root", *parts], f"{names}")
    expect(messages(halves, "all_gather")["count"] == 1 + 2 * 4, f"{halves}")
    table = run(context, 1, [*words, "--dry-run"], "none", name="table").out_path.read_text()
    for line in ("layers.{0-1}.attention", "2 x", "all_gather over world", "9 of"):
        expect(line in table, table)


SIZES = (1, 64, 100, 4096, 5000, 20_000, 36_864, 45_000, 100_000, 131_072, 140_000, 10**9)  # some are sizes of modules


@case(90, tier="wide", processors=1)
def wrap_by_size_is_torchs(context):
    """size:N makes the groups of size_based_auto_wrap_policy, for the smallest to the largest N."""
    import functools

    import torch
    from torch.distributed.fsdp.wrap import _recursive_wrap, size_based_auto_wrap_policy

    def linear(rows, columns):
        return torch.nn.Linear(columns, rows, bias=False, device="meta")

    def children(**modules):
        parent = torch.nn.Module()
        for name, module in modules.items():
            parent.add_module(name, module)
        return parent

    def norm():
        return torch.nn.RMSNorm(64, device="meta")

    def model():  # SMALL_MODEL
        blocks = [
            children(
                attention=children(wq=linear(64, 64), wk=linear(32, 64), wv=linear(32, 64), wo=linear(64, 64)),
                feed_forward=children(w1=linear(192, 64), w2=linear(64, 192), w3=linear(192, 64)),
                attention_norm=norm(),
                ffn_norm=norm(),
            )
            for _ in range(2)
        ]
        embedding = torch.nn.Embedding(2048, 64, device="meta")
        return children(tok_embeddings=embedding, layers=torch.nn.ModuleList(blocks), norm=norm(), output=linear(2048, 64))

    for size in SIZES:
        wrapped, root = [], model()
        expect(sum(p.numel() for p in root.parameters()) == 360_768, "another model than the program's")
        names = {module: name for name, module in root.named_modules()}

        def record(module, **_):
            wrapped.append(names[module])
            return module

        policy = functools.partial(size_based_auto_wrap_policy, min_num_params=size)
        _recursive_wrap(root, policy, record, set(), set(), only_wrap_children=True)
        words = ["--config", write_job(context, "small"), "--world-size", 2, "--parallelism.fsdp_wrap", f"size:{size}"]
        found, _ = dry_run_of(context, f"size{size}", *words)
        groups = [group["name"] for group in found["groups"] if group["name"] != "the root"]
        expect(sorted(groups) == sorted(wrapped), f"size:{size}: {sorted(groups)}, torch has {sorted(wrapped)}")

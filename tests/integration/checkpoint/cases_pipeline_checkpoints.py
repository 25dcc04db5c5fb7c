"""Tests what a pipeline saves and starts from: the whole model, as one rank has it."""
import json

from cases_convert import command, expect_equal, read_dcp
from cases_hugging_face import DCP, EXPORT, read_folder
from cases_parity import FP32_TOLERANCE
from cases_parity_pipeline import WEIGHTS_OF_KERNELS
from cases_parity_table import SHAPES, norm_of_most
from cases_whole_weights import FILE, load
from checkpoint_tools import FP32, SAVE
from fixtures import SMALL_MODEL, write_job
from harness import case, check_close, expect, import_reference, read_rows, run

JOB = SMALL_MODEL.replace("local_batch_size = 2", "local_batch_size = 4").replace("seq_len = 64", "seq_len = 32")
# Each rank has the first or the last stage and one in the middle, so what it saves is in two pieces of the model.
PIPELINE = ["--parallelism.pipeline_parallel_degree", 2, "--parallelism.pipeline_parallel_schedule", "Interleaved1F1B"]
SAVES = {"dcp": [*EXPORT, *DCP], "file": FILE, "hf": EXPORT}


def check_near(found, wanted, start, what):
    """Checks that two runs of one job have the same weights but for rounding, as a part of how far they moved."""
    expect(set(found) == set(wanted), f"{what}: other names: {sorted(set(found) ^ set(wanted))}")
    for name, weight in wanted.items():
        moved = (norm_of_most(found[name] - weight) / (weight - start[name]).norm()).item()
        expect(moved <= WEIGHTS_OF_KERNELS["own"], f"{what}: {name} is {moved} of its way off")


@case(120, tier="long", shape=["uneven"])
@case(120, quick=True, shape=["tied"])
def pipeline_saves_whole_weights(context, shape):
    """A file and a Hugging Face export of a pipeline have the bits of its DCP folder, and the weights of one rank's but
    for rounding. From each of them a pipeline has one rank's first loss."""
    init_weights, job_file = import_reference()
    sizes = [f"--model.args.{name}={value}" for name, value in SHAPES[shape].items()]
    config = write_job(context, "job", JOB, steps=2)

    def train(name, ranks, *more):
        dump = context.dump(name)
        words = ["--config", config, *sizes, *FP32, "--job.dump_folder", dump, *(PIPELINE if ranks == 2 else []), *more]
        run(context, ranks, words, name=name)
        return dump

    start = init_weights.initial_weights(job_file.load_job(config, sizes))
    alone = {kind: train(f"alone_{kind}", 1, *words) / "checkpoint/step-2" for kind, words in SAVES.items() if kind != "file"}
    saved = {kind: train(f"saved_{kind}", 2, *words) / "checkpoint/step-2" for kind, words in SAVES.items()}
    weights = read_dcp(saved["dcp"])
    check_near(weights, read_dcp(alone["dcp"]), start, "DCP")
    file = load(saved["file"] / "model.pt")
    expect_equal(file, weights, "the file")
    (exported, described), (_, described_alone) = read_folder(saved["hf"]), read_folder(alone["hf"])
    expect(described == described_alone, f"config.json: {described}, one rank's {described_alone}")
    command(context, "convert", saved["dcp"], context.folder / "converted", "--to", "hf")
    expect_equal(exported, read_folder(context.folder / "converted")[0], "the export")
    if shape == "tied":
        pointers = {file[name].data_ptr() for name in ("tok_embeddings.weight", "output.weight")}
        expect(len(pointers) == 1, "the tied weight is in the file twice")

    for kind, path in (("dcp", saved["dcp"]), ("file", saved["file"] / "model.pt"), ("hf", saved["hf"])):
        words = ["--training.steps", 1, "--checkpoint.enable", "--checkpoint.initial_load_path", path]
        words += ["--checkpoint.initial_load_in_hf"] if kind == "hf" else []
        dumps = [train(f"{kind}_on_{ranks}", ranks, *words) for ranks in (2, 1)]
        found, wanted = (read_rows(dump / "metrics.jsonl") for dump in dumps)
        check_close(found, wanted, ("loss", "grad_norm"), FP32_TOLERANCE, f"from {kind}")


@case(120)
def any_stages_have_the_same_curve(context):
    """A run that is resumed with two stages on sharded ranks, on one rank, with four stages, and with two that form a V,
    starts with the bits of a run on one rank and has its losses, norms, counts of tokens and validation losses."""
    steps = 7
    words = ["--training.dataset", "jsonl", "--training.global_batch_size", 8, *FP32, "--lr_scheduler.total_steps", steps]
    words += ["--validation.enable", "--validation.freq", 1, "--validation.local_batch_size", 4, "--validation.seq_len", 32]
    held_out = context.folder / "held_out.jsonl"  # all of it, in each pass
    held_out.write_text("".join((context.fixtures / "corpus.jsonl").read_text().splitlines(keepends=True)[:3]))
    words += ["--validation.dataset", "jsonl", "--validation.dataset_path", held_out, "--validation.steps", -1]
    words += ["--debug.checksum_freq", 1]
    run(context, 1, ["--config", write_job(context, "straight", JOB, steps=steps), *words], name="straight")

    words += ["--config", write_job(context, "meshes", JOB, steps=steps), *SAVE, "--checkpoint.interval", 1000]
    for ranks, stages, schedule, last in [(4, 2, "1F1B", 2), (1, 1, "1F1B", 4), (4, 4, "GPipe", 5), (2, 2, "ZBVZeroBubble", steps)]:
        mesh = ["--parallelism.pipeline_parallel_degree", stages, "--parallelism.pipeline_parallel_schedule", schedule]
        run(context, ranks, [*words, *mesh, "--training.steps", last], name=f"until_{last}")
    first = [json.loads((context.dump(name) / "checksums.jsonl").read_text().split("\n")[0]) for name in ("meshes", "straight")]
    expect(first[0]["step"] == 0 and first[0] == first[1], f"the first weights differ: {first}")
    # Rounded as in elastic_resize: far below the effect of one other sample.
    for file, keys in [("metrics.jsonl", ("loss", "grad_norm", "tokens_seen")), ("validation.jsonl", ("loss", "tokens"))]:
        found, expected = (read_rows(context.dump(name) / file) for name in ("meshes", "straight"))
        check_close(found, expected, keys, 1e-4, file)

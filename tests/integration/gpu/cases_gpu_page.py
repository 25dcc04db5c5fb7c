"""Runs the commands of docs/gpu.md as they stand there, on the CUDA runtime that computes nothing."""
import re
import shlex

from cases_null_cuda import null_cuda, traces
from fixtures import DEBUG_MODEL, write_job
from harness import ROOT, VENV, Job, case, expect, free_port, read_rows, skip

# A rehearsal is short, has no tokenizer of Meta's, and a loss that nobody computed need not be finite.
STEPS = {"llama3_8b": 3, "debug": 40}
REHEARSED = {"llama3_8b": ["--model.hf_assets_path", "./assets/tokenizer"], "debug": []}
NOT_COMPUTED = ["--training.on_nan", "warn"]


def commands():
    """Returns the commands that the page shows, in its order, each as one line."""
    page = (ROOT / "docs/gpu.md").read_text().replace("\\\n", " ")
    return [re.sub(r"\s+#.*", "", line.strip()) for line in page.splitlines() if re.match(r"    (titan-train|torchrun|scripts|nvidia-smi)", line)]


def at_the_root(context):
    """Returns a folder in which the page's relative paths are those of the repository, and outputs are the test's."""
    folder = context.folder / "root"
    folder.mkdir()
    for name in ("configs", "assets"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def words_of(context, command):
    words = [context.program if word == "titan-train" else word for word in shlex.split(command)]
    if "--config" not in words or "--dry-run" in words:
        return words
    name = re.search(r"configs/(\w+)\.toml", command)[1]
    if "--training.steps" in words:
        words[words.index("--training.steps") + 1] = STEPS[name]
    else:
        words += ["--training.steps", STEPS[name]]
    return [*words, *REHEARSED[name], *NOT_COMPUTED]


@case(240, processors=2)
def null_cuda_first_hour(context):
    """Every command for one machine with eight GPUs ends well on eight null devices, and leaves what the page says."""
    if not (context.program.parent / "libtitan_cuda.so").exists():
        skip("nvcc")
    folder, env = at_the_root(context), null_cuda(context, moved=0)
    ours = [command for command in commands() if command.startswith("titan-train")]
    expect(len(ours) >= 5, f"the page has the commands {ours}")
    for number, command in enumerate(ours):
        job = Job(words_of(context, command), context.folder / "logs", f"command{number}", env, folder)
        code = job.wait(120)
        expect(code == 0, f"{command}: exit code {code}\n{job.tail(30)}")
        if " doctor" in command:
            expect("8 x NVIDIA H100 80GB HBM3" in job.text(), job.tail(30))
        if "--dry-run" in command:
            expect("predicted use" in job.text(), job.tail(30))
    expect(len(traces(context)) == 8, f"traces of ranks {sorted(traces(context))}")
    last = read_rows(folder / "outputs/llama3_8b/metrics.jsonl")[-1]
    for key in ("num_alloc_retries", "lost_data_seconds", "productive_seconds", "mfu"):
        expect(key in last, f"no {key} in {last}")
    saves = sorted(path.name for path in (folder / "outputs/saves/checkpoint").glob("step-*"))
    expect(saves == ["step-20", "step-40"], f"the saves are {saves}")


@case(240, processors=2)
def null_cuda_several_machines(context):
    """Agents of two machines with four devices each start a doctor and a run of eight ranks, whose parameters stay within each
    machine, as the page says."""
    if not (context.program.parent / "libtitan_cuda.so").exists():
        skip("nvcc")
    [page] = [command for command in commands() if command.startswith("torchrun")]
    run = ["--config", write_job(context, "run", DEBUG_MODEL, 3), "--training.device", "cuda", *NOT_COMPUTED, "--parallelism.data_parallel_replicate_degree", 2]  # fmt: skip
    for name, words in (("doctor", []), ("run", run)):
        line = page.replace("HOST:29500", f"127.0.0.1:{free_port()}").replace("--nproc-per-node 8", "--nproc-per-node 4")
        expect("127.0.0.1" in line and "per-node 4" in line, f"the page has the command {page}")
        command = [VENV / "torchrun", *words_of(context, line)[1:]]
        command = command if name == "doctor" else [*command[:-1], *words]
        jobs = [
            Job(command, context.folder / "logs", f"{name}{machine}", null_cuda(context, machine=machine, devices=4, moved=0))
            for machine in range(2)
        ]
        codes = [job.wait(120) for job in jobs]
        if name == "doctor":
            text = "".join(job.text() for job in jobs)
            expect("4 x NVIDIA H100 80GB HBM3" in text, jobs[0].tail(40))
            # Two machines that are one: each finds itself where the other should be. The rest must be well.
            failures = re.findall(r"^failure +(\w+(?: \w+)*)", text, re.MULTILINE)
            expect(set(failures) <= {"host name", "meeting point"}, f"failures of {failures}\n{jobs[0].tail(40)}")
        else:
            expect(codes == [0, 0], f"exit codes {codes}\n{jobs[0].tail(40)}")
    expect(len(read_rows(context.dump("run") / "metrics.jsonl")) == 3, "the run did not train 3 steps")
    expect(sorted(traces(context)) == list(range(8)), f"traces of ranks {sorted(traces(context))}")

"""Tests the engine as a library: a program of somebody else, built against the installed folder alone, as docs/library.md says."""
import dataclasses
import os
import pathlib
import re
import shutil
import tempfile

from cases_install import install, torch_series
from cases_wheel import finished
from harness import ROOT, VENV, case, expect, start

TORCH = {"PATH": f"{VENV}:{os.environ['PATH']}", "TITAN_TORCH": "", "LD_LIBRARY_PATH": "", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}


def build(context, tree, source):
    """Builds examples/own_model of an installed folder, outside of it and of the repository. Returns the program."""
    shutil.copytree(tree / "examples/own_model", source)
    finished(context, "configure", ["cmake", "-S", source, "-B", source / "build", f"-DCMAKE_PREFIX_PATH={tree}"], env=TORCH)
    job = finished(context, "build", ["cmake", "--build", source / "build", "--verbose"], 240, TORCH)
    expect(str(ROOT / "src") not in job.text(), "the build reads headers of the repository")
    return source / "build/own_model"


def steps_of(context, program, name, ranks, checkpoints, num_steps):
    """Trains to a step. Returns the lines of the steps."""
    words = [context.folder / "text", checkpoints, num_steps]
    example = dataclasses.replace(context, program=program)
    job = start(example, ranks, words, "none" if ranks == 1 else "torchrun", name, TORCH)
    code = job.wait(60)
    expect(code == 0, f"{name}: exit code {code}\n{job.tail()}")
    expect(not job.errors(), f"{name}: a good run says something on standard error\n{job.tail()}")
    return [line for line in job.text().splitlines() if line.startswith("step ")]


def check_training(context, program):
    """Interrupted or not, the steps are the same to the last digit; the loss falls."""
    whole = steps_of(context, program, "whole", 2, context.folder / "whole", 20)
    first = steps_of(context, program, "first", 2, context.folder / "parts", 10)
    second = steps_of(context, program, "second", 2, context.folder / "parts", 20)
    expect(whole == first + second and len(whole) == 20, f"a resume changes the steps\n{whole}\n{first + second}")
    losses = [float(re.search(r"loss ([\d.]+)", line)[1]) for line in whole]
    # A byte in 256 costs ln 256 = 5.5; the text has a hundred different ones, and most letters are of a few.
    expect(losses[0] > 5 and losses[-1] < 4, f"the loss falls from {losses[0]} to {losses[-1]} only")


def check_other_ranks(context, program):
    """Other numbers of ranks load the same values: they save, without a step between, what PyTorch reads as the same."""
    saved = {2: context.folder / "whole/step-20"}
    for ranks in (1, 3):
        folder = context.folder / f"on-{ranks}"
        shutil.copytree(context.folder / "whole", folder)
        lines = steps_of(context, program, f"on-{ranks}", ranks, folder, 20)
        expect(not lines, f"steps beyond the last: {lines}")
        saved[ranks] = folder / "step-20"
    files = {ranks: sorted(path.name for path in folder.glob("*.distcp")) for ranks, folder in saved.items()}
    expect(len({tuple(names) for names in files.values()}) == 3, f"the files are those of the same ranks: {files}")
    words = ["--ranks", 1, "--output", context.folder, "--checkpoints", *saved.values()]
    finished(context, "pytorch", [VENV / "python", ROOT / "tests/reference/dcp_load.py", *words], 120)
    import torch  # not at the head of the file: it takes seconds, and other cases need none of it

    loaded = torch.load(context.folder / "1.pt", weights_only=False)
    tensors = {ranks: loaded[str(folder)]["rows"] for ranks, folder in saved.items()}
    expect({"embedding.weight", "optimizer.state.output.weight.exp_avg"} <= set(tensors[2]), f"keys: {sorted(tensors[2])}")
    for ranks in (1, 3):
        expect(tensors[ranks].keys() == tensors[2].keys(), f"{ranks} ranks save other keys")
        for key, tensor in tensors[2].items():
            expect(torch.equal(tensors[ranks][key], tensor), f"{key} differs after {ranks} ranks have loaded and saved it")
    last = steps_of(context, program, "longer", 3, context.folder / "on-3", 22)
    expect([line.split()[1] for line in last] == ["21", "22"], f"3 ranks go on with {last}")


def check_failure(context, program):
    """An exception on a rank ends all of them, and its message is printed once."""
    example = dataclasses.replace(context, program=program)
    words = ["/nonexistent", context.folder / "none", 1]
    job = start(example, 2, words, "torchrun", "failing", TORCH)
    job.wait(60)
    told = job.errors().count("/nonexistent has no text to train on")
    expect(told == 1, f"the reason is printed {told} times\n{job.tail()}")
    alone = start(example, 1, words, "none", "failing-alone", TORCH)
    expect(alone.wait(60) == 2, f"bad input\n{alone.tail()}")


def check_gpu(context, program):
    """With a GPU, its module is loaded with the torch that the program uses; one that cannot be used is not ignored."""
    if not (context.program.parent / "libtitan_cuda.so").exists():
        return
    stub = TORCH | {"LD_LIBRARY_PATH": str(context.program.parent / "stub_driver"), "STUB_CUDA_DEVICES": "1"}
    example = dataclasses.replace(context, program=program)
    words = [context.folder / "text", context.folder / "gpu", 1]
    old = start(example, 1, words, "none", "old-driver", {**stub, "STUB_CUDA_VERSION": "12040"})
    expect(old.wait(60) == 2 and "there is a GPU, but the CUDA driver" in old.errors(), f"an old driver\n{old.tail()}")
    # The driver is not a real one, so nothing runs; but all libraries are found.
    new = start(example, 1, words, "none", "driver", {**stub, "STUB_CUDA_VERSION": "99000"})
    expect(new.wait(60) != 0 and "shared object" not in new.errors(), f"the CUDA module is not loaded\n{new.tail()}")


def check_headers(tree):
    """Every header that an installed one includes is installed, and docs/library.md names those that titan.h includes."""
    umbrella = (tree / "include/titan/titan.h").read_text()
    page = (ROOT / "docs/library.md").read_text()
    named = re.findall(r'#include "titan/([^"]+)"', umbrella)
    missing = [name for name in named if f"`{name}`" not in page]
    expect(len(named) > 10 and not missing, f"docs/library.md does not name {missing}")
    for path in (tree / "include").rglob("*.h"):
        for name in re.findall(r'#include "([^"]+)"', path.read_text()):
            expect((tree / "include" / name).is_file(), f"{path.relative_to(tree)} includes {name}, which is not installed")


def check_other_torch(context, tree):
    """Another torch is refused when CMake runs, with its version and what to set; so is a name of none."""
    other = context.folder / "other/torch"
    (other / "lib").mkdir(parents=True)
    (other / "lib/libtorch_cpu.so").touch()
    (other / "version.py").write_text("__version__ = '2.9.1+cpu'\n")
    example = dataclasses.replace(context, program="cmake")

    def refused(name, place, text):
        words = ["-S", tree / "examples/own_model", "-B", context.folder / name, f"-DCMAKE_PREFIX_PATH={tree}"]
        job = start(example, 1, [*words, f"-DTITAN_TORCH_DIR={place}"], "none", name, TORCH)
        expect(job.wait(60) == 1, f"CMake accepts {place}\n{job.tail()}")
        told = " ".join(job.errors().split())
        expect(text in told and "or set TITAN_TORCH_DIR" in told, f"the message: {told}")

    refused("other-series", other, f"is torch 2.9.1+cpu, and this build of Titan needs {torch_series()};")
    refused("no-torch", "/nonexistent", "/nonexistent is not the absolute path of a torch package")


@case(300, tier="wide")
def library(context):
    """find_package(Titan) of an installed folder: the example builds, trains, resumes at other numbers of ranks; PyTorch reads what it saves."""
    with tempfile.TemporaryDirectory() as place:
        tree = install(context, place)
        program = build(context, tree, pathlib.Path(place) / "source")
        shutil.copyfile(ROOT / "assets/corpus/train/_custom_ops.py.txt", context.folder / "text")
        check_headers(tree)
        check_training(context, program)
        check_other_ranks(context, program)
        check_failure(context, program)
        check_gpu(context, program)
        check_other_torch(context, tree)

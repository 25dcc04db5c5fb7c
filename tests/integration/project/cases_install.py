"""Tests the folder that `cmake --install` makes: it runs anywhere, with any python3 that has the right torch wheel."""
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from harness import ROOT, VENV, Job, case, expect, read_rows, skip, start

MAX_BYTES = 60 << 20
# The libraries of C and of the compiler, which cmake/TitanInstall.cmake leaves out, too.
OF_EVERY_SYSTEM = re.compile(r"(lib(c|m|dl|rt|pthread|util|stdc\+\+|gcc_s)\.so|.*/ld-linux|linux-vdso)")
ENVIRONMENT = {"PATH": f"{VENV}:{os.environ['PATH']}", "LD_LIBRARY_PATH": "", "TITAN_PYTHON": "", "TITAN_TORCH": ""}
STEPS = ["--training.steps", "3", "--training.local_batch_size", "1", "--training.seq_len", "64", "--metrics.log_freq", "1"]


def install(context, place):
    """Installs, then moves the folder away from every path that was known when it was made."""
    first = context.folder / "first"
    build = context.program.parent
    job = Job(["cmake", "--install", build, "--prefix", first], context.folder / "logs", "install")
    code = job.wait(60)
    expect(code == 0, f"cmake --install failed\n{job.tail()}")
    tree = pathlib.Path(place) / "moved tree"
    shutil.move(first, tree)
    return tree


def check_size(tree):
    size = sum(path.lstat().st_size for path in tree.rglob("*"))
    print(f"       installed: {size / 2**20:.1f} MiB", file=sys.stderr)
    expect(size < MAX_BYTES, f"{size} bytes, at most {MAX_BYTES} are allowed")


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def elf_files(tree):
    found = [path for path in tree.rglob("*") if path.is_file() and not path.is_symlink() and is_elf(path)]
    names = {path.name for path in found}
    expect({"titan-train", "cuda_device_test", "libtitan_cuda.so"} <= names, f"programs or the CUDA module are missing: {sorted(names)}")
    return found


def check_no_build_path(tree):
    """Checks that no file names the source tree, and that the loader is sent to neighboring folders only."""
    for path in tree.rglob("*"):
        if path.is_file() and path.name != "libtitan_cuda.so":  # nvcc writes the paths of kernels for profilers
            expect(bytes(ROOT) not in path.read_bytes(), f"{path.relative_to(tree)} names {ROOT}")
    for path in elf_files(tree):
        dump = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
        for folders in re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", dump):
            places = folders.split(":")
            expect(all(p.startswith("$ORIGIN") for p in places), f"{path.relative_to(tree)} looks for libraries in {folders}")


def torch_series():
    """Returns the series of the torch that the program was compiled with: 2.11 of 2.11.0."""
    return re.search(r"__version__ = '(\d+\.\d+)", (site_packages() / "torch/version.py").read_text())[1]


def site_packages():
    place = subprocess.run([VENV / "python", "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"], capture_output=True, text=True)
    return pathlib.Path(os.path.realpath(place.stdout.strip()))


def check_libraries(tree):
    """Checks that with the search path that bin/titan-train sets, the loader finds everything: in lib/, in the wheel, or in the system."""
    packages = site_packages()
    path = ":".join(map(str, [tree / "lib", packages / "torch/lib", *sorted(packages.glob("nvidia/*/lib"))]))
    listed = subprocess.run(["ldd", *elf_files(tree)], capture_output=True, text=True, env={**os.environ, "LD_LIBRARY_PATH": path})
    found = dict(re.findall(r"(\S+) => (.+?)(?: \(0x[0-9a-f]+\))?$", listed.stdout, re.MULTILINE))
    expect("libtorch_cuda.so" in found and "libtorch_cpu.so" in found, f"ldd shows too little\n{listed.stdout}{listed.stderr}")
    for name, place in found.items():
        expect(place != "not found", f"{name} is not found")
        real = os.path.realpath(place)
        known = OF_EVERY_SYSTEM.match(name) or real.startswith(f"{packages}/") or pathlib.Path(real).parent == tree / "lib"
        expect(known, f"{name} comes from {place}: it is neither in lib/ nor torch's nor of every system")


def check_training(context, tree):
    """Trains with its own configuration, corpus and tokenizer, by each way to start ranks."""
    installed = dataclasses.replace(context, program=tree / "bin/titan-train")
    for launcher in ("nproc", "torchrun", "mpirun"):
        words = ["--config", tree / "configs/debug.toml", *STEPS, "--job.dump_folder", context.dump(launcher)]
        words += ["--model.hf_assets_path", tree / "assets/tokenizer", "--training.dataset_path", tree / "assets/corpus/train"]
        if launcher == "nproc":
            # From the folder itself, where the configuration's relative paths hold.
            words = ["--nproc", "2", "--config", "configs/debug.toml", *STEPS, "--job.dump_folder", context.dump(launcher)]
            job = Job([installed.program, *words], context.folder / "logs", launcher, ENVIRONMENT, tree)
        else:
            job = start(installed, 2, words, launcher, launcher, ENVIRONMENT)
        code = job.wait(60)
        expect(code == 0, f"{launcher}: exit code {code}\n{job.tail()}")
        rows = read_rows(context.dump(launcher) / "metrics.jsonl")
        expect(len(rows) == 3, f"{launcher}: {len(rows)} steps, expected 3")


def check_search(context, tree):
    """Takes torch from the folder that TITAN_TORCH names, without a Python, and not what LD_LIBRARY_PATH offers."""
    decoy = context.folder / "decoy"
    decoy.mkdir()
    for name in ("libtorch_cpu.so", "libc10.so", "libtitan_engine.so"):
        (decoy / name).write_text("no library")
    env = {**ENVIRONMENT, "PATH": "/nonexistent", "LD_LIBRARY_PATH": str(decoy), "TITAN_TORCH": str(site_packages() / "torch")}
    job = Job([tree / "bin/titan-train", "--version"], context.folder / "logs", "decoy", env)
    code = job.wait(20)
    expect(code == 0 and "torch:" in job.text(), f"with other libraries in LD_LIBRARY_PATH: exit code {code}\n{job.tail()}")


def write_script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def check_refusals(context, tree):
    """Without the right torch, it says what is needed, what was found and where, and how to choose another Python."""
    other = context.folder / "other"
    (other / "torch/lib").mkdir(parents=True)
    (other / "torch/__init__.py").touch()
    (other / "torch/lib/libtorch_cpu.so").touch()
    (other / "torch/version.py").write_text("__version__ = '2.10.1+cpu'\n")
    bare = write_script(context.folder / "bare", f'exec "{VENV}/python" -S -E "$@"')
    cases = {
        "none": ({"TITAN_PYTHON": str(bare)}, f"'{bare}' has none"),
        "broken": ({"TITAN_PYTHON": "/bin/false"}, "'/bin/false' could not be asked where its torch is"),
        "absent": ({"TITAN_PYTHON": "/nonexistent/python3"}, "there is no '/nonexistent/python3'"),
        "version": ({"PYTHONPATH": str(other)}, f"{other}/torch has torch 2.10.1+cpu"),
        "folder": ({"TITAN_TORCH": str(context.folder)}, f"{context.folder} is not the folder of a torch wheel"),
    }
    for name, (env, text) in cases.items():
        job = Job([tree / "bin/titan-train", "--version"], context.folder / "logs", name, {**ENVIRONMENT, **env})
        code = job.wait(20)
        expect(code == 2, f"{name}: exit code {code}, expected 2\n{job.tail()}")
        remedy = ["Correct or unset TITAN_TORCH"] if "TITAN_TORCH" in env else [f"pip install 'torch=={torch_series()}.*'", "TITAN_PYTHON=/path/to/python3"]
        for part in (text, f"torch {torch_series()} is needed", *remedy):
            expect(part in job.errors(), f"{name}: the message lacks '{part}':\n{job.tail()}")


def check_incomplete(context, tree):
    """A program without its engine, or with the engine of another build, says so and what to do."""
    alone, mixed = context.folder / "alone", context.folder / "mixed"
    (mixed / "bin").mkdir(parents=True)
    (mixed / "lib").symlink_to(tree / "lib")
    alone.mkdir()
    shutil.copy(tree / "bin/titan-train", alone)
    program = (tree / "bin/titan-train").read_bytes()
    other, count = re.subn(rb"(\d+\.\d+\.\d+ )[0-9a-f]{12}", rb"\g<1>000000000000", program)
    expect(count > 0, "the program does not contain its revision")
    (mixed / "bin/titan-train").write_bytes(other)
    (mixed / "bin/titan-train").chmod(0o755)
    for folder, text in ((alone, "has lost its engine: install it again"), (mixed / "bin", "Uninstall titan-train from each Python")):
        job = Job([folder / "titan-train", "--version"], context.folder / "logs", folder.parent.name, ENVIRONMENT)
        code = job.wait(20)
        expect(code == 1 and text in job.errors(), f"{folder}: exit code {code}, expected 1 and '{text}'\n{job.tail()}")


def check_other_folder(context, tree):
    """A program from the PATH loads its own engine, in a folder with files of the same names, too."""
    folder = context.folder / "same names"
    folder.mkdir()
    for name in ("titan-train", "libtitan_engine.so"):
        (folder / name).write_text("not the installed one")
    path = f"{tree / 'bin'}:{ENVIRONMENT['PATH']}"
    job = Job(["titan-train", "--version"], context.folder / "logs", "same-names", {**ENVIRONMENT, "PATH": path}, folder)
    expect(job.wait(20) == 0 and "torch:" in job.text(), f"it took what is in the current folder\n{job.tail()}")


def check_examples(context, tree):
    """init --examples copies what can be changed, also from an installation that cannot, and overwrites nothing."""
    read_only = [tree / "configs", *(tree / "configs").rglob("*")]
    for path in read_only:
        path.chmod(path.stat().st_mode & 0o555)
    target = context.folder / "my examples"
    words = [tree / "bin/titan-train", "init", "--examples", target]
    first = Job(words, context.folder / "logs", "examples", ENVIRONMENT)
    expect(first.wait(20) == 0, f"--examples failed\n{first.tail()}")
    copied = list(target.rglob("*"))
    expect(len(copied) > 100 and all(path.stat().st_mode & 0o200 for path in copied), f"{len(copied)} files, or some cannot be written")
    again = Job(words, context.folder / "logs", "examples-again", ENVIRONMENT)
    expect(again.wait(20) == 2 and "is there already" in again.errors(), f"it overwrites\n{again.tail()}")
    for path in read_only:
        path.chmod(path.stat().st_mode | 0o200)


@case(180)
def install_tree(context):
    """cmake --install: small, free of build paths, complete, and it trains after it was moved."""
    if not (context.program.parent / "libtitan_cuda.so").exists():
        skip("a build with the CUDA module, which needs nvcc")
    with tempfile.TemporaryDirectory() as place:
        tree = install(context, place)
        check_size(tree)
        check_no_build_path(tree)
        check_libraries(tree)
        check_training(context, tree)
        check_search(context, tree)
        check_refusals(context, tree)
        check_incomplete(context, tree)
        check_other_folder(context, tree)
        check_examples(context, tree)

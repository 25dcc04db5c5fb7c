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
ENVIRONMENT = {"PATH": f"{VENV}:{os.environ['PATH']}", "LD_LIBRARY_PATH": "", "TITAN_PYTHON": ""}
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
    """Checks that no text file names the source tree, and that the loader is sent to neighboring folders only."""
    for path in tree.rglob("*"):
        if path.is_file() and not is_elf(path):
            expect(bytes(ROOT) not in path.read_bytes(), f"{path.relative_to(tree)} names {ROOT}")
    for path in elf_files(tree):
        dump = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
        for folders in re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", dump):
            places = folders.split(":")
            expect(all(p.startswith("$ORIGIN") for p in places), f"{path.relative_to(tree)} looks for libraries in {folders}")


def check_libraries(context, tree):
    """Checks that bin/titan-train's loader settings find everything: in lib/, in the wheel, or in the system."""
    wheel = subprocess.run([VENV / "python", "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"], capture_output=True, text=True)
    wheel = os.path.realpath(wheel.stdout.strip())
    # The launcher starts the program with its own name: here, ldd.
    shutil.copy(tree / "bin/titan-train", tree / "bin/resolve")
    (tree / "libexec/resolve").symlink_to(shutil.which("ldd"))
    files = elf_files(tree)
    job = Job([tree / "bin/resolve", *files], context.folder / "logs", "ldd", ENVIRONMENT)
    code = job.wait(60)
    expect(code == 0, f"ldd failed\n{job.tail()}")
    found = dict(re.findall(r"(\S+) => (.+?)(?: \(0x[0-9a-f]+\))?$", job.text(), re.MULTILINE))
    expect("libtorch_cuda.so" in found and any(name.startswith("libspdlog.so.") for name in found), f"ldd shows too little\n{job.tail()}")
    for name, path in found.items():
        expect(path != "not found", f"{name} is not found")
        real = os.path.realpath(path)
        known = OF_EVERY_SYSTEM.match(name) or real.startswith(f"{wheel}/") or pathlib.Path(real).parent == tree / "lib"
        expect(known, f"{name} comes from {path}: it is neither in lib/ nor torch's nor of every system")
    (tree / "bin/resolve").unlink()
    (tree / "libexec/resolve").unlink()


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


def write_script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def check_refusals(context, tree):
    """Without the right torch, it says what is needed, what was found and where, and how to choose another Python."""
    other = context.folder / "other"
    (other / "torch").mkdir(parents=True)
    (other / "torch/__init__.py").touch()
    (other / "torch/version.py").write_text("__version__ = '2.10.1+cpu'\n")
    bare = write_script(context.folder / "bare", f'exec "{VENV}/python" -S -E "$@"')
    cases = {
        "none": ({"TITAN_PYTHON": str(bare)}, "has no torch"),
        "broken": ({"TITAN_PYTHON": "/bin/false"}, "'/bin/false' could not be asked where its torch is"),
        "absent": ({"TITAN_PYTHON": "/nonexistent/python3"}, "there is no '/nonexistent/python3'"),
        "version": ({"PYTHONPATH": str(other)}, f"has torch 2.10.1+cpu in {other}/torch"),
    }
    for name, (env, text) in cases.items():
        job = Job([tree / "bin/titan-train", "--version"], context.folder / "logs", name, {**ENVIRONMENT, **env})
        code = job.wait(20)
        expect(code == 2, f"{name}: exit code {code}, expected 2\n{job.tail()}")
        for part in (text, "torch 2.11.0", "TITAN_PYTHON=/path/to/python3"):
            expect(part in job.errors(), f"{name}: the message lacks '{part}':\n{job.tail()}")


@case(180)
def install_tree(context):
    """cmake --install: small, free of build paths, complete, and it trains after it was moved."""
    if not (context.program.parent / "libtitan_cuda.so").exists():
        skip("a build with the CUDA module, which needs nvcc")
    with tempfile.TemporaryDirectory() as place:
        tree = install(context, place)
        check_size(tree)
        check_no_build_path(tree)
        check_libraries(context, tree)
        check_training(context, tree)
        check_refusals(context, tree)

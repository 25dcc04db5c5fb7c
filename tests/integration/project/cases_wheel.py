"""Tests the wheel that scripts/make_wheel.py makes of an installed folder: pip installs it beside torch, and it works there."""
import gzip
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from cases_install import is_elf, site_packages
from harness import ROOT, VENV, Job, case, expect, skip
from tokenizer_fixtures import LANGUAGES, make_tokenizer

# Names that the libraries inside export when they are shared, as nm shows them.
BUNDLED = re.compile(r"(pcre2_|ZSTD_|HUF_|FSE_|utf8proc_|inflate|deflate|crc32|adler32|gz(open|read)|_ZNK?(13sentencepiece|3fmt|6spdlog|6google|4absl|8nlohmann|4toml|3CLI))")
# Stands in for a user's own copies of those libraries, loaded first: nothing of it may be called.
DECOY = """
#include <stdlib.h>
#define TAKE(name) void name(void) { abort(); }
TAKE(pcre2_compile_8) TAKE(pcre2_match_8) TAKE(pcre2_jit_compile_8)
TAKE(ZSTD_decompressStream) TAKE(ZSTD_createDStream) TAKE(inflateInit2_) TAKE(inflate)
TAKE(utf8proc_decompose) TAKE(utf8proc_reencode) TAKE(utf8proc_iterate)
TAKE(_ZN13sentencepiece22SentencePieceProcessorC1Ev) TAKE(_ZN13sentencepiece22SentencePieceProcessorC2Ev)
"""


def finished(context, name, words, timeout_s=60, env=None, cwd=None):
    job = Job(words, context.folder / "logs", name, env, cwd)
    code = job.wait(timeout_s)
    expect(code == 0, f"{name}: exit code {code}\n{job.tail(30)}")
    return job


def make_wheel(context, tree, name):
    job = Job([VENV / "python", ROOT / "scripts/make_wheel.py", tree, context.folder / name], context.folder / "logs", name)
    code = job.wait()
    if "the programs need symbols of" in job.errors():
        skip("a compiler and a C library as old as Debian 12's")
    expect(code == 0, f"exit code {code}\n{job.tail()}")
    return pathlib.Path(job.out_path.read_text().strip())


def make_environment(context, place):
    """Makes a virtual environment with pip, and with links to everything that .venv has: torch is 5 GB."""
    env = pathlib.Path(place) / "env"
    finished(context, "venv", [VENV / "python", "-m", "venv", env])
    packages = next(env.glob("lib/python3*/site-packages"))
    for path in site_packages().iterdir():
        if not (packages / path.name).exists():
            (packages / path.name).symlink_to(path)
    return env, packages


def files_of(env):
    """Returns all files and folders of an environment but those behind the links to .venv, and pip's own bytecode."""
    found = set()
    for folder, folders, files in os.walk(env):
        found |= {pathlib.Path(folder, name) for name in folders + files if not name.endswith(".pyc") and name != "__pycache__"}
    return found


def check_symbols(packages, program):
    """Checks that nothing of the libraries inside can be seen from outside, or be replaced from there."""
    for path in [program, *(packages / "titan_train/lib").glob("*.so*")]:
        listed = subprocess.run(["nm", "-D", path], capture_output=True, text=True, check=True).stdout
        visible = [line.split()[-1] for line in listed.splitlines() if BUNDLED.match(line.split()[-1])]
        expect(not visible, f"{path.name} shows {len(visible)} symbols of other libraries: {visible[:5]}")


def check_decoy(context, program):
    source, library = context.folder / "decoy.c", context.folder / "libdecoy.so"
    source.write_text(DECOY)
    finished(context, "decoy", ["cc", "-shared", "-fPIC", "-o", library, source])
    text = context.folder / "text.jsonl.gz"
    text.write_bytes(gzip.compress((json.dumps({"text": " ".join(LANGUAGES)}) + "\n").encode()))
    make_tokenizer("qwen", context.folder / "bpe", LANGUAGES, 400)
    for tokenizer in (context.fixtures / "tokenizer", context.folder / "bpe"):
        words = [program, "tokenizer", "encode", "--tokenizer", tokenizer, "--jsonl", text]
        plain = finished(context, "plain", words)
        preloaded = finished(context, "preloaded", words, env={"LD_PRELOAD": str(library)})
        expect(preloaded.text() == plain.text() and plain.text(), f"a library that is loaded first changes the tokens of {tokenizer}")


@case(240, tier="wide")
def wheel(context):
    """The wheel: the same bytes each time, accepted by auditwheel, installed by pip, used as a newcomer would, and uninstalled without a trace."""
    build = context.program.parent
    if ".deps" not in (build / "CMakeCache.txt").read_text():
        skip("a build with the libraries of scripts/dependencies.py")
    tree = context.folder / "tree"
    finished(context, "install", ["cmake", "--install", build, "--prefix", tree])
    wheel, again = make_wheel(context, tree, "wheel"), make_wheel(context, tree, "again")
    digests = {hashlib.sha256(path.read_bytes()).hexdigest() for path in (wheel, again)}
    expect(len(digests) == 1, "two wheels of one folder differ")
    with tempfile.TemporaryDirectory() as place:
        env, packages = make_environment(context, place)
        before = files_of(env)
        pip = [env / "bin/python", "-m", "pip", "--disable-pip-version-check"]
        finished(context, "pip-install", [*pip, "install", "--no-index", "--no-cache-dir", wheel], 120)
        program = env / "bin/titan-train"
        expect(is_elf(program), f"{program} is a script: it would start a Python each time")
        check_symbols(packages, program)
        check_decoy(context, program)
        own = packages / "titan_train"
        words = ["-S", own / "examples/own_model", "-B", context.folder / "own_model", f"-DCMAKE_PREFIX_PATH={own}"]
        finished(context, "find_package", ["cmake", *words], env={"PATH": f"/usr/bin:{os.environ['PATH']}", "TITAN_TORCH": ""})
        # No Python is needed to find torch: there is none.
        hidden = shutil.move(env / "bin/python3", env / "bin/hidden")
        alone = finished(context, "alone", [program, "--version"], env={"PATH": "/nonexistent", "LD_LIBRARY_PATH": ""})
        expect("torch:" in alone.text(), f"--version without a Python\n{alone.tail()}")
        shutil.move(hidden, env / "bin/python3")
        work = context.folder / "work"
        work.mkdir()
        surroundings = {"PATH": f"{env / 'bin'}:{os.environ['PATH']}", "TORCHRUN": f"{env / 'bin/python'} -m torch.distributed.run"}
        surroundings["WITHOUT_MPI"] = "" if shutil.which("mpirun") else "1"
        job = finished(context, "journey", ["bash", pathlib.Path(__file__).with_name("journey.sh"), work], 200, surroundings)
        expect("journey: done" in job.text(), f"it stopped early\n{job.tail()}")
        finished(context, "pip-uninstall", [*pip, "uninstall", "--yes", "titan-train"])
        left = sorted(files_of(env) - before)
        expect(not left, f"uninstall leaves {len(left)} files: {left[:5]}")

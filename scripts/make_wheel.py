#!/usr/bin/env python3
"""Makes a wheel of a folder that `cmake --install` made, and checks that it runs where it claims to.

    .venv/bin/python scripts/make_wheel.py INSTALLED_FOLDER OUTPUT_FOLDER

The program becomes bin/titan-train of the environment, without a Python script around it; everything else becomes the
package titan_train, beside torch, where the program finds both (src/base/installation.h). The same folder gives the same
bytes. Prints the path of the wheel.
"""

import base64
import fnmatch
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# RHEL 9 and its relatives, Ubuntu 22.04, Debian 12 and later: glibc 2.34, GLIBCXX_3.4.29.
PLATFORM = "manylinux_2_34_x86_64"
MAX_BYTES = 40 << 20
# The environment brings these: torch, and the CUDA and NCCL wheels that torch depends on.
FROM_TORCH = ("libtorch*", "libc10*", "libgomp.so.1", "libcudart*", "libnccl*")


def fail(text: str) -> None:
    sys.exit(f"make_wheel.py: {text}")


def setting(file: str, pattern: str) -> str:
    """Returns what `pattern` captures in a file of the repository, which is the only place that says it."""
    found = re.search(pattern, (ROOT / file).read_text(), re.MULTILINE)
    if not found:
        fail(f"{file} has no '{pattern}'")
    return found[1]


def torch_series(tree: pathlib.Path) -> str:
    """Returns the series of torch that the programs were compiled with, and accept."""
    found = re.search(r"^Needs: torch ([\d.]+),", (tree / "README.txt").read_text(), re.MULTILINE)
    if not found:
        fail(f"{tree}/README.txt does not say which torch is needed: it was not made by cmake --install")
    return found[1]


def metadata(version: str, series: str) -> str:
    return f"""Metadata-Version: 2.1
Name: titan-train
Version: {version}
Summary: Trains large language models from one TOML file: TorchTitan's configuration, as one native program on LibTorch
License: BSD-3-Clause
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C++
Requires-Python: >=3.10
Requires-Dist: torch=={series}.*
Description-Content-Type: text/markdown

{(ROOT / "README.md").read_text()}"""


def contents(tree: pathlib.Path, version: str) -> dict[str, tuple[bytes, bool]]:
    """Returns each file of the wheel: its name, its bytes, and whether it may be executed."""
    name = f"titan_train-{version}"
    files = {}
    for path in sorted(tree.rglob("*")):
        inside = path.relative_to(tree).as_posix()
        if not path.is_file():
            continue
        if path.is_symlink():
            fail(f"{path} is a link, which a wheel cannot contain")
        target = f"{name}.data/scripts/titan-train" if inside == "bin/titan-train" else f"titan_train/{inside}"
        files[target] = (path.read_bytes(), bool(path.stat().st_mode & 0o100))
    if f"{name}.data/scripts/titan-train" not in files or "titan_train/lib/libtitan_engine.so" not in files:
        fail(f"{tree} was not made by cmake --install: it has no bin/titan-train or no lib/libtitan_engine.so")
    files[f"{name}.dist-info/METADATA"] = (metadata(version, torch_series(tree)).encode(), False)
    wheel = f"Wheel-Version: 1.0\nGenerator: titan-train\nRoot-Is-Purelib: false\nTag: py3-none-{PLATFORM}\n"
    files[f"{name}.dist-info/WHEEL"] = (wheel.encode(), False)
    for path in [tree / "LICENSE", *sorted(tree.glob("licenses/*"))]:
        files[f"{name}.dist-info/licenses/{path.name}"] = files.pop(f"titan_train/{path.relative_to(tree)}")
    return files


def record(files: dict[str, tuple[bytes, bool]], own_name: str) -> str:
    lines = []
    for name, (data, _) in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}\n")
    return "".join(lines) + f"{own_name},,\n"


def write(wheel: pathlib.Path, files: dict[str, tuple[bytes, bool]]) -> None:
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, (data, is_program) in files.items():
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix: the mode counts
            entry.external_attr = (0o100755 if is_program else 0o100644) << 16
            archive.writestr(entry, data)


def check(wheel: pathlib.Path) -> None:
    """Lets auditwheel find libraries and versions of symbols that not every machine of the platform has."""
    run = subprocess.run([sys.executable, "-m", "auditwheel", "show", "--json", wheel], capture_output=True, text=True)
    if run.returncode:
        fail(f"auditwheel cannot read {wheel.name}:\n{run.stdout}{run.stderr}")
    found = json.loads(run.stdout)
    needed = found["sym_tag"].removesuffix("_x86_64")
    if glibc(needed) > glibc(PLATFORM):
        newest = {name: versions[-1] for name, versions in found["versioned_symbols"].items()}
        fail(
            f"the programs need symbols of {needed}, so they do not run on every {PLATFORM}; the newest of each library: "
            f"{newest}. Build on Debian 12, or with its compiler and C library"
        )
    foreign = [name for name in found["external_libs"] if not any(fnmatch.fnmatch(name, known) for known in FROM_TORCH)]
    if foreign:
        fail(
            f"these libraries are not inside, and not on every machine: {', '.join(foreign)}. Build with the libraries of "
            "scripts/dependencies.py"
        )
    if found["unsupported_isa"]:
        fail("the programs do not run on every x86-64 processor: they were compiled for more instructions")
    if wheel.stat().st_size > MAX_BYTES:
        fail(f"{wheel.name} has {wheel.stat().st_size / 2**20:.1f} MiB, more than {MAX_BYTES >> 20}")


def glibc(platform: str) -> tuple[int, ...]:
    """Returns (2, 34) of manylinux_2_34; of a platform that fits no machine but this one, more than any."""
    found = re.match(r"manylinux_(\d+)_(\d+)", platform)
    return tuple(map(int, found.groups())) if found else (99, 0)


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    tree, output = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    version = setting("CMakeLists.txt", r"^project\(titan-train VERSION ([\d.]+)")
    files = contents(tree, version)
    own_name = f"titan_train-{version}.dist-info/RECORD"
    files[own_name] = (record(files, own_name).encode(), False)
    output.mkdir(parents=True, exist_ok=True)
    wheel = output / f"titan_train-{version}-py3-none-{PLATFORM}.whl"
    write(wheel, files)
    check(wheel)
    print(wheel)


if __name__ == "__main__":
    main()

"""Checks libtitan_cuda.so against the engine that loads it, by their symbol tables: module_symbols_test.py ENGINE MODULE

The module exports its entry, finds every symbol of titan in the engine, and brings no copy of the engine's own.
"""
import subprocess
import sys


def symbols(library, *options):
    listed = subprocess.run(["nm", "-D", *options, library], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].partition("@")[0] for line in listed.splitlines()}


def readable(names):
    return subprocess.run(["c++filt", *sorted(names)], capture_output=True, text=True, check=True).stdout


def main():
    engine, module = sys.argv[1:]
    needed = {name for name in symbols(module, "--undefined-only") if "5titan" in name}
    offered = symbols(engine, "--defined-only")
    defined = symbols(module, "--defined-only")
    failures = []
    if "titan_register_cuda" not in defined:
        failures.append("the module does not export titan_register_cuda")
    register = [name for name in needed if "20register_accelerator" in name]
    if not register:
        failures.append("the module does not take register_accelerator from the engine: it would register with itself")
    if needed - offered:
        failures.append("the engine does not export what the module needs:\n" + readable(needed - offered))
    failures += [f"the engine links {name}" for name in linked(engine) if is_cuda(name)]
    print("\n".join(failures) or f"{len(needed)} symbols of the engine, all found")
    return 1 if failures else 0


def linked(library):
    dump = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    return [line.split("[")[1].rstrip("]") for line in dump.splitlines() if "(NEEDED)" in line]


def is_cuda(name):
    return any(word in name for word in ("cuda", "nccl", "cublas", "cudnn", "nvidia", "nvrtc"))


if __name__ == "__main__":
    sys.exit(main())

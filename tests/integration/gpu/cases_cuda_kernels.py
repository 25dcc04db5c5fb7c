"""Compiles this program's CUDA kernels for every kind of GPU, and reads what the assembler says of them."""
import re
import subprocess

from harness import ROOT, case, expect, skip

# The threads that a multiprocessor of each architecture holds (CUDA C++ Programming Guide, compute capabilities).
THREADS = {"75": 1024, "80": 2048, "90": 2048, "100": 2048, "120": 1536}
REGISTERS = 65536  # of each of them
STATIC_SHARED = 48 << 10
KERNEL = re.compile(
    r"Compiling entry function '(?P<name>\w+)' for 'sm_(?P<of>\d+)'.*?"
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers[^\n]*?(?:, (?P<shared>\d+) bytes smem)?[^\n]*\n",
    re.DOTALL,
)


def compiler(context, language, name):
    """Returns the compiler of the build; skips the case if there is none."""
    cache = context.program.parent / "CMakeCache.txt"
    found = re.search(rf"^CMAKE_{language}_COMPILER:\w+=(\S+)$", cache.read_text(), re.MULTILINE) if cache.exists() else None
    return found[1] if found else skip(name)


@case(300, tier="wide", processors=1)
def own_kernels_keep_registers(context):
    """No kernel spills registers to memory, and all leave room for half of the threads of a multiprocessor: their speed
    is that of memory, whose latency only other threads hide."""
    nvcc = compiler(context, "CUDA", "nvcc")
    known = subprocess.run([nvcc, "--list-gpu-arch"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    architectures = [name for name in THREADS if f"compute_{name}" in known]
    expect(len(architectures) >= 4, f"nvcc knows {known}")
    codes = [word for name in architectures for word in ("-gencode", f"arch=compute_{name},code=sm_{name}")]
    for source in sorted((ROOT / "src/kernels/cuda").glob("*.cu")):
        command = [nvcc, "-std=c++20", "-O3", "-DNDEBUG", "--expt-relaxed-constexpr", "-I", ROOT / "src", "-Xptxas", "-v", *codes]
        output = context.folder / f"{source.stem}.fatbin"
        done = subprocess.run([*map(str, command), "-fatbin", "-o", output, source], stderr=subprocess.PIPE, text=True)
        expect(done.returncode == 0, done.stderr[-2000:])
        found = list(KERNEL.finditer(done.stderr))
        expect(len(found) == done.stderr.count("Compiling entry function"), f"{source.name}: the assembler says it in other words")
        expect({each["of"] for each in found} == set(architectures), f"{source.name}: {len(found)} kernels")
        for each in found:
            what = f"{each['name']} on sm_{each['of']}"
            expect(each["stack"] == each["stores"] == each["loads"] == "0", f"{what} spills: {each[0]}")
            most = REGISTERS // (THREADS[each["of"]] // 2)
            expect(int(each["registers"]) <= most, f"{what} has {each['registers']} registers, and may have {most}")
            expect(int(each["shared"] or 0) <= STATIC_SHARED, f"{what} has {each['shared']} bytes of shared memory")

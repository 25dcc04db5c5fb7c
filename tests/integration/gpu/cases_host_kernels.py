"""Runs the CUDA kernels on the host (tests/support/host_lanes/) under sanitizers, as they are and with faults."""
import shutil
import subprocess

from cases_cuda_kernels import compiler
from harness import ROOT, case, expect
from planted_faults import planted

KERNELS = "cuda/launch_fused_rows.cu"
LANES = "portable/fused_lanes.h"
LAST_PACK = "i < dim / Pack<T>::kSize; i += kLanes"
REPORTS = {"thread": "ThreadSanitizer: data race", "address": "AddressSanitizer"}

# Each is what a sanitizer finds in the kernels if a text takes another's place in a file. No value needs to change.
FAULTS = {
    "a team's sum is replaced before all have read it": ("thread", KERNELS, ("    __syncthreads();  // the previous sum has been read\n", "")),
    "a team's sum is read before all of it is there": (
        "thread",
        KERNELS,
        ("of_warps_[lane / kWarp] = of_warp;\n    __syncthreads();\n", "of_warps_[lane / kWarp] = of_warp;\n"),
    ),
    "strips are added before they are there": ("thread", LANES, ("    team.wait();\n    team.each", "    team.each")),
    "two blocks write the same columns": ("thread", KERNELS, ("columns[blockIdx.x * dim + slot] = own", "columns[slot] = own")),
    "a row has one pack more": ("address", LANES, (LAST_PACK, LAST_PACK.replace("<", "<=", 1))),
    "the last columns have no shared memory": ("address", KERNELS, ("(dim) * sizeof(float);", "(dim - 8) * sizeof(float);")),
}
ALWAYS_PLANTED = ["a team's sum is replaced before all have read it", "the last columns have no shared memory"]


def report(context, sources, sanitizer):
    """Returns what the sanitizer prints of all kernels, which lie in the folder `sources`."""
    program = context.folder / f"kernels_{sanitizer}"
    lanes = ROOT / "tests/support/host_lanes"
    kinds = "address,undefined" if sanitizer == "address" else sanitizer
    words = ["-std=c++20", "-O1", "-g1", "-fno-extern-tls-init", f"-fsanitize={kinds}", "-fno-sanitize-recover=undefined"]
    words += ["-I", lanes, "-I", sources, "-I", ROOT, "-o", program, *sorted(lanes.glob("*.cpp"))]
    kernels = sorted((sources / "kernels/cuda").glob("*.cu"))
    done = subprocess.run([compiler(context, "CXX", "a C++ compiler"), *map(str, words), "-x", "c++", *map(str, kernels)], stderr=subprocess.PIPE, text=True)
    expect(done.returncode == 0, done.stderr[-2000:])
    done = subprocess.run([program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    expect((done.returncode == 0) != any(text in done.stdout for text in REPORTS.values()), done.stdout[-2000:])
    return done.stdout if done.returncode != 0 else ""


def check_faults(context, names):
    sources = context.folder / "src"
    shutil.copytree(ROOT / "src/kernels", sources / "kernels")
    for name in names:
        sanitizer, path, change = FAULTS[name]
        with planted(sources / "kernels", {path: change}):
            found = report(context, sources, sanitizer)
        expect(REPORTS[sanitizer] in found, f"not found: {name}\n{found[-2000:]}")


@case(600, tier="wide", processors=1)
def kernels_pass_sanitizers_on_the_host(context):
    """Sanitizers find nothing in the kernels, and find a missing barrier and an access beyond shared memory."""
    for sanitizer in REPORTS:
        found = report(context, ROOT / "src", sanitizer)
        expect(not found, found[-4000:])
    check_faults(context, ALWAYS_PLANTED)


@case(1200, tier="long", processors=1)
def faults_of_kernels_are_found_on_the_host(context):
    check_faults(context, [name for name in FAULTS if name not in ALWAYS_PLANTED])

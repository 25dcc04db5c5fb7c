"""Checks the bytes that libtitan_operator_bytes.so counts for operators on null devices (tests/support/operator_bytes/)."""
import json
import pathlib

from cases_null_cuda import null_cuda, run, traces
from harness import VENV, Job, case, expect, file_of_build, skip

F32, BF16 = 4, 2
MATRIX = 64 * 32 * F32
# Bytes that each operator of counted_operators.py reads and writes.
KNOWN = {
    "aten::mul.Tensor": (MATRIX + 32 * F32, MATRIX),  # the row is expanded
    "aten::add_.Tensor": (2 * MATRIX, MATRIX),
    "aten::copy_": (MATRIX, MATRIX // F32 * BF16),
    "aten::sub.out": (2 * MATRIX, MATRIX),
    "aten::cat": (2 * 64 * 8 * F32, 64 * 16 * F32),  # of parts of the rows
    "aten::_foreach_copy_": (15 * F32, 15 * F32),
    "aten::addmm": ((16 + 6 * 32 + 16 * 32) * F32, 6 * 16 * F32),
    "aten::mm": ((6 * 16 + 6 * 32) * F32, 16 * 32 * F32),
}


def observed(context, label):
    """Returns settings of a job on null devices whose operators are counted, and the folder of what is counted."""
    folder = context.folder / f"operators_{label}"
    folder.mkdir()
    return {"observer": file_of_build(context, "libtitan_operator_bytes.so"), "operators": folder}, folder


def only_file(folder, rank=0):
    found = list(folder.glob(f"operator_bytes.{rank}.*.json"))
    expect(len(found) == 1, f"rank {rank} wrote {found}")
    return json.loads(found[0].read_text())


def count_known(context, times):
    settings, folder = observed(context, times)
    script = pathlib.Path(__file__).with_name("counted_operators.py")
    job = Job([VENV / "python", script, times], context.folder / "logs", f"times_{times}", null_cuda(context, **settings))
    code = job.wait(60)
    expect(code == 0, f"exit code {code}\n{job.tail(40)}")
    return only_file(folder)["operators"]


def counts(calls, read, written):
    return {"calls": calls, "work": calls, "read": calls * read, "written": calls * written}


def known(times):
    return {name: counts(times, *bytes) for name, bytes in KNOWN.items()}


def different(found, expected):
    """Returns a line for each operator whose counts are not the expected ones."""
    names = sorted(found.keys() | expected.keys())
    return [f"{name}: {found.get(name)}, expected {expected.get(name)}" for name in names if found.get(name) != expected.get(name)]


# SMALL_MODEL on a rank: 3 steps, 2 blocks, 2 x 64 tokens, in bfloat16; a dim of 64, and 192 within the feed-forward.
CALLS, ROWS, WEIGHT = 3 * 2, 2 * 64 * 64 * BF16, 64 * BF16
GATED, SCALES = 2 * 64 * 192 * BF16, 2 * 64 * F32  # a scale is a norm's float32 value of a row
OWN = {
    "titan::rms_norm": (9, ROWS + WEIGHT, ROWS + SCALES),  # the last norm's as well
    "titan::add_rms_norm": (CALLS, 2 * ROWS + WEIGHT, 2 * ROWS + SCALES),
    "titan::swiglu": (CALLS, 2 * GATED, GATED),
    "titan::swiglu_backward": (CALLS, 3 * GATED, 2 * GATED),
}


@case(60, processors=2)
def null_cuda_counts_bytes(context):
    """The bytes of operators are those computed by hand: of this program's own kernels, and of torch's in Python."""
    if not (context.program.parent / "libtitan_cuda.so").exists():
        skip("nvcc")
    settings, folder = observed(context, "own")
    run(context, 2, ["--cuda.kernels", "own"], **settings)
    for rank, trace in traces(context).items():
        counted = only_file(folder, rank)
        expected = {name: counts(calls, *bytes) for name, (calls, *bytes) in OWN.items()}
        lines = different({name: counted["operators"].get(name) for name in OWN}, expected)
        expect(not lines, "\n".join([f"rank {rank}:", *lines]))
        # No operator draws initial weights, and the first launch only starts the counting.
        outside = 1 + sum(count for kernel, count in trace["launches"].items() if "fill_uniform_kernel" in kernel)
        expect(counted["outside"] == outside, f"rank {rank}: {counted['outside']} launches of no operator, expected {outside}")
    for times in (1, 3):
        found = count_known(context, times)
        lines = different(found, known(times))
        expect(not lines, "\n".join([f"of {times} calls each:", *lines]))
        expect(len(different(found, known(times + 1))) == len(KNOWN), "one more call of each would not be noticed")

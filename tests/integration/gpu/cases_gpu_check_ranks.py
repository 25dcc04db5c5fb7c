"""Runs what scripts/gpu_check.sh checks on several GPUs over NCCL on the null CUDA runtime (tests/support/null_cuda/)."""
import json

from cases_gpu_check import check, check_sums, make_folder
from cases_null_cuda import null_cuda
from harness import case, expect, skip

# Replaces bin/titan-train: runs on CUDA get null devices, whose weights may not be finite when they are saved. Runs of
# 1.1 billion parameters move nothing within devices and between them, so that their memory takes none of the host's.
ON_NULL_CUDA = """#!/bin/bash
[[ " $* " == *" --training.device cuda "* ]] || exec "PROGRAM" "$@"
[[ " $* " != *" --model.args.dim 2048 "* ]] || export NULL_CUDA_MOVED=0
export VARIABLES
exec "PROGRAM" "$@" --training.on_nan warn
"""
GPUS = 4
# A null device computes nothing: all losses are zero.
COMPARE_VALUES = {
    "two GPUs over NCCL: the loss falls",
    "two GPUs over NCCL, ZeRO-3: the CPU's losses",
    "two GPUs over NCCL, ZeRO-2: the CPU's losses",
    "two GPUs over NCCL, attention within documents and validation: the CPU's losses",
    "two GPUs over NCCL, tensor parallel: the CPU's losses",
    "two GPUs over NCCL, tensor parallel, overlapped: the CPU's losses",
    "two GPUs over NCCL, context parallel: the CPU's losses",
    "two GPUs over NCCL, context parallel in a ring: the CPU's losses",
    "two GPUs over NCCL, pipeline parallel: the CPU's losses",
    "four GPUs over NCCL, HSDP 2 x 2: the CPU's losses",
    "four GPUs over NCCL, resharded over two neighbours: the CPU's losses",
    "four GPUs over NCCL, tensor parallel 2 x FSDP 2, overlapped: the CPU's losses",
}
OTHERS = {
    "two GPUs over NCCL: deterministic runs are equal": "equal rows: 10 metrics",
    "two GPUs over NCCL: a save and a resume leave the losses as they are": "equal rows: 10 metrics, 3 checksums; equal rows: 5 metrics, 1 checksums",
    "two GPUs over NCCL: an asynchronous save and a resume leave the losses as they are": "equal rows: 10 metrics, 3 checksums; equal rows: 5 metrics, 1 checksums",
    "two GPUs over NCCL: a killed rank ends all": "exit code 137; rank 1: ended without reporting an error",
    "two GPUs over NCCL: a hang is told and ends": "exit code 3; stops: rank 1: has been in step for",
    "two GPUs over NCCL, 1B: what does not fit ends with its reason": "exit code 1; out of memory in step 1: there is no room for",
    "two GPUs over NCCL, 1B: the same bits with every launch blocking": "equal rows: 3 metrics, 2 checksums",
    "two GPUs over NCCL, 1B: no more memory than the dry run says": "1b-two",
}
NEED_EIGHT = {
    "eight GPUs over NCCL: the loss falls",
    "eight GPUs over NCCL, pipeline 2 x FSDP 2 x tensor parallel 2: the CPU's losses",
}


@case(300, tier="wide")
def gpu_check_of_several_gpus(context):
    """Where nothing is computed, exactly the checks that compare with computed values fail; ranks that are killed, hang or
    have no memory left, saves, resumes and exit codes pass. What needs more GPUs is skipped by name."""
    if not (context.program.parent / "libtitan_cuda.so").exists():
        skip("nvcc")
    variables = " ".join(f"{name}='{value}'" for name, value in null_cuda(context, devices=GPUS).items())
    tree = make_folder(context, ON_NULL_CUDA.replace("VARIABLES", variables), GPUS)
    report = context.folder / "report.json"
    words = [tree / "scripts/gpu_check.sh", tree, "--json", report, "--only", "over NCCL|over Gloo"]
    visible = ",".join(map(str, range(GPUS)))
    job, code = check(context, "check", words, {"CUDA_VISIBLE_DEVICES": visible})
    expect(code == 1, f"exit code {code}, expected 1 because of failed checks\n{job.tail(60)}")
    content = json.loads(report.read_text())
    check_sums(job, content)
    failed = {row["name"]: row["found"] for row in content["checks"] if not row["passed"]}
    passed = {row["name"]: row["found"] for row in content["checks"] if row["passed"]}
    expect(failed.keys() == COMPARE_VALUES, f"failed: {failed}\n{job.tail(200)}")
    expect(passed.keys() == OTHERS.keys(), f"passed: {passed}\n{job.tail(200)}")
    for name, found in failed.items():
        falls = name.endswith("the loss falls")
        said = "0.000 to 0.000 in 60 steps" if falls else "largest relative difference 1.0e+00, allowed 1e-3"
        expect(found == said, f"'{name}' found '{found}', expected '{said}'")
    for name, said in OTHERS.items():
        expect(passed[name].startswith(said), f"'{name}' found '{passed[name]}', expected '{said}'")
    skipped = {row["name"]: row["reason"] for row in content["skipped"]}
    more = {name for name, reason in skipped.items() if reason == "needs 8 GPUs"}
    expect(more == NEED_EIGHT, f"skipped: {skipped}")
    shared = {name for name, reason in skipped.items() if reason == f"NCCL does it here: {GPUS} GPUs"}
    expect(len(shared) == 8 and all("on one GPU over Gloo" in name for name in shared), f"skipped: {skipped}")
    expect(len(skipped) == len(more) + len(shared), f"skipped: {skipped}")

"""Tests what the program does about CUDA if it is not wanted, or not there. With a device: scripts/gpu_check.sh."""
import re

from fixtures import write_job
from harness import Job, case, expect, read_rows

CUDA_LIBRARY = re.compile(r"cuda|nccl|cublas|cudnn|cufft|cusparse|cupti|nvrtc|nvshmem")
# The wheel's libtorch_cpu links these for its profiler. They start nothing by themselves.
OF_TORCH_CPU = re.compile(r"lib(cudart|cupti)\.so")


def run(context, name, words, env, exit_code):
    job = Job([context.program, *words], context.folder / "logs", name, env=env)
    code = job.wait(60)
    expect(code == exit_code, f"exit code {code}, expected {exit_code}: {' '.join(job.command)}\n{job.tail()}")
    return job


def loaded_libraries(context, name, words):
    """Returns every library that the dynamic loader opened for a run, by its own log."""
    log = context.folder / f"{name}.loader"
    run(context, name, words, {"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(log)}, 0)
    text = "".join(path.read_text(errors="replace") for path in log.parent.glob(log.name + ".*"))
    found = set(re.findall(r"calling init: (\S+)", text))
    expect(any("libtorch_cpu" in path for path in found), f"the loader's log does not even name libtorch_cpu: {sorted(found)[:5]}")
    return found


@case(60, processors=1)
def cpu_run_loads_no_cuda_library(context):
    """A run on CPUs trains, and --version answers, without CUDA libraries other than those that libtorch_cpu brings."""
    job_file = write_job(context, "cpu", steps=3)
    for name, words in {"version": ["--version"], "train": ["--config", job_file, "--training.device", "cpu"]}.items():
        names = {path.rpartition("/")[2] for path in loaded_libraries(context, name, words)}
        cuda = sorted(n for n in names if CUDA_LIBRARY.search(n) and not OF_TORCH_CPU.match(n))
        expect(not cuda, f"{name}: loaded {cuda}")
    expect(len(read_rows(context.dump("cpu") / "metrics.jsonl")) == 3, "the run did not train")


def without_driver(context):
    """Returns an environment in which even an installed CUDA driver cannot be loaded: its library is an empty file."""
    folder = context.folder / "no_driver"
    folder.mkdir()
    (folder / "libcuda.so.1").touch()
    return {"LD_LIBRARY_PATH": str(folder)}


@case(60, processors=1)
def without_a_driver_auto_trains_on_cpu(context):
    """training.device = "auto" says that there is no driver, and trains on the CPU; "cuda" is refused with the same reason."""
    env = without_driver(context)
    words = ["--config", write_job(context, "auto", steps=3), "--training.device"]
    job = run(context, "auto", [*words, "auto"], env, 0)
    expect("training on CPU: no CUDA driver" in job.text(), f"auto does not say why it trains on the CPU:\n{job.tail()}")
    expect(len(read_rows(context.dump("auto") / "metrics.jsonl")) == 3, "the run did not train")
    refused = run(context, "cuda", [*words, "cuda"], env, 2)
    expect('training.device = "cuda", but no CUDA driver' in refused.errors(), f"cuda is refused without the reason:\n{refused.tail()}")


@case(60, processors=1)
def an_old_driver_is_named_with_both_versions(context):
    """A driver of CUDA 12.4 with eight devices: "auto" warns and trains on the CPU, "cuda" and doctor fail, each with both versions."""
    env = {"LD_LIBRARY_PATH": str(context.program.parent / "stub_driver"), "STUB_CUDA_VERSION": "12040", "STUB_CUDA_DEVICES": "8"}
    reason = re.compile(r"the CUDA driver of this machine is too old: it runs CUDA 12\.4 and earlier, and this build needs CUDA \d+\.\d+; install NVIDIA's driver \d+")
    words = ["--config", write_job(context, "auto", steps=3), "--training.device"]
    job = run(context, "auto", [*words, "auto"], env, 0)
    warned = [line for line in job.text().splitlines() if "WARNING" in line and "training on CPU" in line]
    expect(len(warned) == 1 and reason.search(warned[0]), f"auto does not warn that it leaves the devices alone:\n{job.tail()}")
    refused = run(context, "cuda", [*words, "cuda"], env, 2)
    expect(reason.search(refused.errors()), f"cuda is refused without the versions:\n{refused.tail()}")
    doctor = run(context, "doctor", ["doctor"], env, 1)
    expect(reason.search(" ".join(doctor.text().split())), f"doctor does not name the versions:\n{doctor.tail(40)}")

"""Plants old faults of the GPU path in a copy of the source, and expects the tests on the simulated device to find them."""
import dataclasses
import os
import shutil

from cases_simulated import check_schedules
from cases_wheel import finished
from harness import ROOT, Failure, Job, case, expect
from planted_faults import FAULTS, planted, with_fault

SAVER_TEST = ["tests/distributed/dist_simulated_device_test", "--gtest_filter=SimulatedSaver.*"]
TARGETS = ["simulated-titan-train", "dist_simulated_device_test"]


@case(30, processors=1)
def planted_faults_fit_the_source(context):
    """Every place in which a fault is planted is there, once."""
    for fault in FAULTS.values():
        for path, change in fault.changes.items():
            with_fault(ROOT, path, change)


def copy_source(context):
    """Returns a copy of the source that builds with the environment and the libraries of the original."""
    source = context.folder / "source"
    listed = finished(context, "listed", ["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard"])
    for line in listed.out_path.read_text().splitlines():
        target = source / line
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / line, target)
    for name in (".venv", ".deps"):
        os.symlink(ROOT / name, source / name)
    return source


def build(context, source, name):
    words = ["cmake", "--build", source / "build/release", "--target", *TARGETS]
    finished(context, name, words, 3000)


def finds(context, build_folder, name, ranks):
    """Returns what the tests against the faults of this many ranks report first; None if all pass."""
    folder = context.folder / name
    folder.mkdir()
    try:
        check_schedules(dataclasses.replace(context, program=build_folder / "titan-train", folder=folder), ranks)
    except Failure as failure:
        return str(failure)
    job = Job([build_folder / SAVER_TEST[0], SAVER_TEST[1]], folder / "logs", "saver")
    return job.text() if job.wait(120) != 0 else None


@case(4000, tier="long")
def planted_faults_are_found(context):
    """Each fault that cost memory or time on GPUs is found if it comes back; without any, nothing is reported."""
    source = copy_source(context)
    folder = source / "build/release"
    finished(context, "configure", ["cmake", "--preset", "release", "-S", source], 300, cwd=source)
    build(context, source, "build")
    for ranks in (2, 4):
        found = finds(context, folder, f"sound_{ranks}", ranks)
        expect(found is None, f"without a fault: {found}")
    for number, (name, fault) in enumerate(FAULTS.items()):
        with planted(source, fault.changes):
            build(context, source, f"build_{number}")
            found = finds(context, folder, f"fault_{number}", fault.ranks)
        expect(found and fault.report in found, f"not found: {name}\n{found}")

"""Tests the wheel where nothing of this repository is: in a new environment, in a bare root file system, and built twice."""
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

from cases_wheel import finished
from harness import ROOT, VENV, case, expect, skip

sys.path.append(str(ROOT / "scripts"))
import dependencies

JOURNEY = pathlib.Path(__file__).with_name("journey.sh")
# A link would lead out of the root file system.
FILES_FOR_PIP = ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt")
# /proc and /dev are bound in a name space of its own, so nothing stays mounted, however this ends.
ENTER = """
set -e
mount --rbind /proc "$0/proc"
mount --rbind /dev "$0/dev"
exec chroot --userspec=1000:1000 "$0" /usr/bin/env HOME=/home/user PATH=/usr/bin:/bin /bin/bash -ec "$1"
"""


def package(context, clone, name):
    """Runs scripts/package.sh in a new clone of the committed sources. Returns the wheel."""
    finished(context, f"{name}-clone", ["git", "clone", "--quiet", ROOT, clone], 120)
    # The clones share what is only downloaded.
    (clone / ".venv").symlink_to(ROOT / ".venv")
    if (ROOT / "build/archives").exists():
        shutil.copytree(ROOT / "build/archives", clone / "build/archives")
    finished(context, name, [clone / "scripts/package.sh"], 2400, {"CCACHE_DISABLE": "1"}, clone)
    return next((clone / "build/wheel/dist").glob("*.whl"))


def wheel_of(context):
    """Returns the wheel of the working tree; scripts/package.sh only builds what has changed."""
    finished(context, "package", [ROOT / "scripts/package.sh"], 2400, cwd=ROOT)
    return next((ROOT / "build/wheel/dist").glob("*.whl"))


@case(5000, tier="long")
def wheel_built_twice(context):
    """Two clones in folders with names of other lengths make the same wheel, byte by byte."""
    wheels = [package(context, context.folder / folder, folder.replace("/", "-")) for folder in ("one", "another/longer name")]
    digests = [hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels]
    expect(digests[0] == digests[1], f"the wheels differ: {digests}; unpack both and compare")


@case(900, tier="long")
def wheel_from_the_index(context):
    """In a new environment, pip takes torch from the index; what a newcomer does works; uninstalling leaves nothing."""
    env = context.folder / "env"
    finished(context, "venv", [VENV / "python", "-m", "venv", env])
    pip = [env / "bin/python", "-m", "pip", "--disable-pip-version-check"]
    finished(context, "install", [*pip, "install", "-q", wheel_of(context)], 600)
    work = context.folder / "work"
    work.mkdir()
    path = f"{env / 'bin'}:{os.environ['PATH']}"
    job = finished(context, "journey", ["bash", JOURNEY, work], 300, {"PATH": path})
    expect("journey: done" in job.text(), f"it stopped early\n{job.tail()}")
    finished(context, "uninstall", [*pip, "uninstall", "--yes", "-q", "titan-train"])
    left = [path for path in env.rglob("*") if re.search("titan", path.name, re.IGNORECASE)]
    expect(not left, f"uninstall leaves {left}")


@case(3000, tier="long")
def release_rehearsal(context):
    """scripts/release.sh builds, tests the wheel in a new environment, and says what to upload."""
    job = finished(context, "release", [ROOT / "scripts/release.sh", "--rehearse"], 3000, cwd=ROOT)
    expect("journey: done" in job.text() and " is ready. In build/wheel/dist:" in job.text(), job.tail())


@case(1200, tier="long", system=["bookworm", "trixie"])
def wheel_in_a_bare_system(context, system):
    """In a root file system with Python and mpirun alone, as an ordinary user: pip install, and all that a newcomer does."""
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        skip("root and debootstrap, to make a root file system")
    place = dependencies.mirror() or skip("a Debian mirror")
    root = context.folder / "root"
    words = ["debootstrap", "--variant=minbase", "--include=python3-venv,openmpi-bin,ca-certificates", system, root, place]
    finished(context, "debootstrap", words, 400)
    home = root / "home/user"
    (home / "work").mkdir(parents=True)
    for name in FILES_FOR_PIP:
        if os.path.exists(name):
            (root / name[1:]).parent.mkdir(parents=True, exist_ok=True)
            (root / name[1:]).unlink(missing_ok=True)
            shutil.copy(name, root / name[1:])
    shutil.copy(wheel_of(context), home)
    shutil.copy(JOURNEY, home)
    subprocess.run(["chown", "-R", "1000:1000", home], check=True)
    commands = "cd; python3 -m venv env; env/bin/pip install -q ./titan_train-*.whl; . env/bin/activate; bash journey.sh work"
    job = finished(context, "journey", ["unshare", "--mount", "sh", "-c", ENTER, root, commands], 900)
    expect("journey: done" in job.text(), f"it stopped early\n{job.tail()}")

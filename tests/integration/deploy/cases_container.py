"""Tests deploy/Dockerfile without Docker: its steps run in order in a root file system of Debian, which stands in for its base."""
import json
import os
import re
import shutil

from cases_wheel import finished
from cases_wheel_systems import FILES_FOR_PIP, dependencies, wheel_of
from harness import ROOT, case, expect, skip

BASE = "debian:12-slim"
KNOWN = {"FROM", "ARG", "COPY", "RUN", "ENV", "USER", "WORKDIR", "ENTRYPOINT", "CMD"}
# As in cases_wheel_systems.py: nothing stays mounted, however this ends.
ENTER = """
set -e
mount --rbind /proc "$0/proc"
mount --rbind /dev "$0/dev"
exec chroot --userspec="$1" "$0" /usr/bin/env HOME=/tmp PATH="$2" /bin/sh -ec "$3"
"""
# Does what a user of the image does: the entry point with arguments, and torchrun, as in trainjob.yaml.
USE = """
titan-train init >job.toml
short='--training.steps 2 --training.local_batch_size 1 --training.seq_len 64 --metrics.log_freq 1'
titan-train --nproc 2 --config job.toml $short --job.dump_folder nproc
torchrun --standalone --no-python --nproc-per-node 2 titan-train --config job.toml $short --job.dump_folder torchrun
cat nproc/metrics.jsonl torchrun/metrics.jsonl | wc -l | grep -x 4
command -v pkill
[ "$(id -u)" = 1000 ] && [ ! -w /opt/titan ]
echo 'image: done'
"""


def steps_of(path):
    """Returns (instruction, text) of each line of a Dockerfile."""
    lines = re.sub(r"\\\n", " ", path.read_text()).splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    unknown = {name for name, _ in steps} - KNOWN
    expect(not unknown, f"this test does not know {unknown}")
    return steps


def share_network(root):
    """Copies what names this machine's network and its certificates. A step that installs ca-certificates replaces the latter."""
    for name in FILES_FOR_PIP:
        if os.path.exists(name):
            (root / name[1:]).parent.mkdir(parents=True, exist_ok=True)
            (root / name[1:]).unlink(missing_ok=True)
            shutil.copy(name, root / name[1:])


@case(30, quick=True, processors=1)
def image_recipe(_context):
    """The Dockerfile begins with the base that image_steps stands in for, ends as an ordinary user, and starts the program."""
    steps = steps_of(ROOT / "deploy/Dockerfile")
    last = dict(steps)
    expect(steps[0] == ["FROM", BASE], f"{steps[0]}")
    expect(last["USER"] not in ("root", "0") and json.loads(last["ENTRYPOINT"]) == ["titan-train"], f"{last}")
    expect([name for name, _ in steps].index("USER") > max(i for i, (name, _) in enumerate(steps) if name == "RUN"), "an ordinary user installs")


@case(1200, tier="long")
def image_steps(context):
    """Every RUN and COPY in order as root, with torch from the index; then the program trains as the image's user."""
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        skip("root and debootstrap, to make a root file system")
    place = dependencies.mirror() or skip("a Debian mirror")
    root = context.folder / "root"
    finished(context, "debootstrap", ["debootstrap", "--variant=minbase", "bookworm", root, place], 400)
    shell, path, user, place = {}, "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "0:0", "/"

    def enter(name, commands, timeout_s):
        share_network(root)
        commands = "".join(f"{key}={value}\n" for key, value in shell.items()) + f"cd {place}\n{commands}"
        return finished(context, name, ["unshare", "--mount", "sh", "-c", ENTER, root, user, path, commands], timeout_s)

    for number, (name, text) in enumerate(steps_of(ROOT / "deploy/Dockerfile")):
        if name == "ARG":
            key, _, value = text.partition("=")
            shell[key] = value
        elif name == "COPY":
            expect(text == "${WHEEL} /tmp/", f"COPY {text}")
            shutil.copy(wheel_of(context), root / "tmp")
        elif name == "RUN":
            enter(f"step{number}", text, 900)
        elif name == "ENV":
            expect(text.startswith("PATH="), f"ENV {text}")
            path = text.removeprefix("PATH=")
        elif name == "USER":
            user = "1000:1000"
        elif name == "WORKDIR":
            place = text
    job = enter("use", USE, 300)
    expect("image: done" in job.text(), f"it stopped early\n{job.tail()}")

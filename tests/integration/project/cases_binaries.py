"""Tests that the linked binaries can be loaded wherever their segments are placed."""
import re
import subprocess

from harness import case, expect, file_of_build

# A line of `readelf -lW`: type, offset, virtual address, physical address, file size, memory size.
SEGMENT = re.compile(r"^ +(LOAD|GNU_RELRO) +0x\w+ 0x(\w+) 0x\w+ 0x\w+ 0x(\w+)", re.MULTILINE)


def binaries(build):
    """Returns the programs and shared libraries that the build links; other cases write other files there."""
    targets = subprocess.run(["ninja", "-C", build, "-t", "targets", "all"], capture_output=True, text=True, check=True).stdout
    paths = [build / name for name in re.findall(r"^(.+): C\w+_(?:EXECUTABLE|SHARED_LIBRARY|MODULE_LIBRARY)_LINKER__", targets, re.MULTILINE)]
    return [path for path in paths if path.exists()]


def protects_what_is_not_loaded(path):
    """True if the part that the loader makes read-only begins outside of what it loads."""
    text = subprocess.run(["readelf", "-lW", path], capture_output=True, text=True, check=True).stdout
    found = [(kind, int(start, 16), int(size, 16)) for kind, start, size in SEGMENT.findall(text)]
    loaded = [range(start, start + size) for kind, start, size in found if kind == "LOAD"]
    expect(loaded, f"{path}: no segments in\n{text}")
    return any(kind == "GNU_RELRO" and not any(start in part for part in loaded) for kind, start, _ in found)


@case(60, quick=True, processors=1)
def binaries_load(context):
    """The loader makes nothing read-only that it has not loaded. If such a part has its own page, which depends on a
    path's length, the program does not start: "cannot apply additional memory protection after relocation"."""
    paths = binaries(file_of_build(context, "build.ninja").parent)
    expect(context.program in paths, f"the program is not among {paths}")
    wrong = [str(path) for path in paths if protects_what_is_not_loaded(path)]
    expect(not wrong, "linked so that their read-only part begins before what is loaded:\n" + "\n".join(wrong))

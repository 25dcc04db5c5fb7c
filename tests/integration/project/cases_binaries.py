"""What the linker made can be loaded wherever its segments come to lie."""
import re
import subprocess

from harness import case, expect

# Of `readelf -lW`: type, offset, virtual address, physical address, file size, memory size.
SEGMENT = re.compile(r"^ +(LOAD|GNU_RELRO) +0x\w+ 0x(\w+) 0x\w+ 0x\w+ 0x(\w+)", re.MULTILINE)


def binaries(build):
    """Programs and shared libraries that the build links. Not what lies in its folders: other cases write there meanwhile."""
    targets = subprocess.run(["ninja", "-C", build, "-t", "targets", "all"], capture_output=True, text=True, check=True).stdout
    paths = [build / name for name in re.findall(r"^(.+): C\w+_(?:EXECUTABLE|SHARED_LIBRARY|MODULE_LIBRARY)_LINKER__", targets, re.MULTILINE)]
    return [path for path in paths if path.exists()]


def protects_what_is_not_loaded(path):
    """Whether the part that the loader makes read-only begins outside of what it loads."""
    text = subprocess.run(["readelf", "-lW", path], capture_output=True, text=True, check=True).stdout
    found = [(kind, int(start, 16), int(size, 16)) for kind, start, size in SEGMENT.findall(text)]
    loaded = [range(start, start + size) for kind, start, size in found if kind == "LOAD"]
    expect(loaded, f"{path}: no segments in\n{text}")
    return any(kind == "GNU_RELRO" and not any(start in part for part in loaded) for kind, start, _ in found)


@case(60, quick=True, processors=1)
def binaries_load(context):
    """The loader makes nothing read-only that it has not loaded. Where that lies in a page of its own, which is a matter of
    the length of a path, the program does not start: "cannot apply additional memory protection after relocation"."""
    paths = binaries(context.program.parent)
    expect(context.program in paths, f"the program is not among {paths}")
    wrong = [str(path) for path in paths if protects_what_is_not_loaded(path)]
    expect(not wrong, "linked so that their read-only part begins before what is loaded:\n" + "\n".join(wrong))

"""What the linker made can be loaded wherever its segments come to lie."""
import os
import re
import subprocess

from harness import case, expect

# Of `readelf -lW`: type, offset, virtual address, physical address, file size, memory size.
SEGMENT = re.compile(r"^ +(LOAD|GNU_RELRO) +0x\w+ 0x(\w+) 0x\w+ 0x\w+ 0x(\w+)", re.MULTILINE)


def binaries(build):
    """Programs and shared libraries of the build, without what CMake linked to try the compiler."""
    for folder, folders, names in os.walk(build):
        folders[:] = [name for name in folders if name != "CMakeFiles"]
        for path in (os.path.join(folder, name) for name in names):
            if os.access(path, os.X_OK) and not os.path.islink(path):
                with open(path, "rb") as file:
                    if file.read(4) == b"\x7fELF":
                        yield path


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
    paths = list(binaries(context.program.parent))
    expect(str(context.program) in paths, f"the program is not among {paths}")
    wrong = [path for path in paths if protects_what_is_not_loaded(path)]
    expect(not wrong, "linked so that their read-only part begins before what is loaded:\n" + "\n".join(wrong))

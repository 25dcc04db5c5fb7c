#!/usr/bin/env python3
"""Builds the libraries that titan-train uses, from pinned sources, into .deps. Needs no root and no packages.

    scripts/dependencies.py

scripts/setup.sh runs this for --no-system, and scripts/package.sh for the wheel. If .deps exists, CMake uses its
libraries instead of the distribution's. They are static, so that a program or wheel built with them needs nothing but
torch. It needs a C++ compiler, and cmake and ninja.

The sources are those of Debian 12's packages; libraries that are only headers come from the packages themselves.
SentencePiece is the source of the Python package that the tests compare with. They are read from build/archives if they
are there (for a machine without a network), else by pip, and from a Debian mirror: TITAN_DEBIAN_MIRROR, or the one that
this machine's apt uses.
"""

import concurrent.futures
import dataclasses
import fcntl
import hashlib
import http.client
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEPS = ROOT / ".deps"
ARCHIVES = ROOT / "build/archives"


@dataclasses.dataclass(frozen=True)
class Source:
    """A source archive that CMake builds, or a Debian package with headers."""

    path: str  # in the mirror's folder pool/main; "pip NAME-VERSION.tar.gz": pip has it
    sha256: str
    options: tuple[str, ...] = ()  # for CMake
    folder: str = "."  # of its CMakeLists.txt
    left_out: str = ""  # a file that Debian leaves out of the archive and CMake wants to see; none of it is compiled
    for_tests: bool = False  # no program that users get contains it

    @property
    def archive(self) -> str:
        return re.split("[ /]", self.path)[-1]

    @property
    def name(self) -> str:
        return re.split("[_-][0-9]", self.archive)[0]


SOURCES = (
    Source(
        "g/gloo/libgloo-dev_0.0~git20220518.5b14351-3_amd64.deb",  # only headers are used: torch contains the library
        "80529c9fd8af452faf489e686b94bf87075965c40673803810c4f41634b1e299",
    ),
    Source(
        "t/tomlplusplus/libtomlplusplus-dev_3.3.0+ds-1_amd64.deb",
        "2779cce0001466dcf60eb6262ff68a888d49f9e30aee80c499d1d4f6f9f6e12e",
    ),
    Source(
        "c/cli11/libcli11-dev_2.1.2+ds-1_all.deb",
        "f1f6ee9ec053e0e0bcec47345e241b6a8ee006321248b4329e9ce88d2b4b64a8",
    ),
    Source(
        "n/nlohmann-json3/nlohmann-json3-dev_3.11.2-2_all.deb",
        "ec57940def6b6186c30be0e0ee81d1e58f86d11a54a145b28686a1e3e4aae801",
    ),
    Source(
        "f/fmtlib/fmtlib_9.1.0+ds1.orig.tar.gz",
        "84ce1c2d0be3a9863935137969dcec6970125caac032f82474640bfc81463583",
        options=("-DFMT_TEST=OFF", "-DFMT_DOC=OFF"),
    ),
    Source(
        "s/spdlog/spdlog_1.10.0+ds.orig.tar.xz",
        "620ca6842b5c21014470bd42eb4716024674214fb973b5ffa3aaea33310ad327",
        options=("-DSPDLOG_FMT_EXTERNAL=ON", "-DSPDLOG_BUILD_EXAMPLE=OFF"),
    ),
    Source(
        "p/pcre2/pcre2_10.42.orig.tar.gz",
        "c33b418e3b936ee3153de2c61cc638e7e4fe3156022a5c77d0711bcbb9d64f1f",
        options=("-DPCRE2_SUPPORT_JIT=ON", "-DPCRE2_BUILD_PCRE2GREP=OFF", "-DPCRE2_BUILD_TESTS=OFF"),
    ),
    Source(
        "u/utf8proc/utf8proc_2.8.0.orig.tar.gz",
        "a0a60a79fe6f6d54e7d411facbfcc867a6e198608f2cd992490e46f04b1bcecc",
    ),
    Source(
        "z/zlib/zlib_1.2.13.dfsg.orig.tar.bz2",
        "71feb7947e3c00ef125f83b79a4e529bde31171e5babe48b391f06758d1ab0a1",
        left_out="win32/zlib1.rc",
    ),
    Source(
        "libz/libzstd/libzstd_1.5.4+dfsg2.orig.tar.xz",
        "8cf4bbb65e77ec348d052c8d6230eba66d435bddf64c8b5be2fcb16880c19953",
        options=(
            "-DZSTD_BUILD_SHARED=OFF",
            "-DZSTD_BUILD_PROGRAMS=OFF",
            "-DZSTD_LEGACY_SUPPORT=OFF",
            "-DCMAKE_C_FLAGS_RELEASE=-O3 -DNDEBUG -DZSTD_TRACE=0",  # no hooks for other libraries
        ),
        folder="build/cmake",
    ),
    Source(
        "pip sentencepiece-0.2.1.tar.gz",
        "8138cec27c2f2282f4a34d9a016e3374cd40e5c6e9cb335063db66a0a3b71fad",
        # It compiles the prefix in, which must not name this machine's folders.
        options=("-DSPM_ENABLE_SHARED=OFF", "-DSPM_ENABLE_TCMALLOC=OFF", "-DCMAKE_INSTALL_PREFIX=/usr"),
        folder="sentencepiece",
    ),
    Source(
        "g/googletest/googletest_1.12.1.orig.tar.gz",
        "81964fe578e9bd7c94dfdb09c8e4d6e6759e19967e397dbea48d1c10e45d0df2",
        for_tests=True,
    ),
)


class Missing(Exception):
    """Raised if an archive is not to be had; the message says why."""


def fail(text: str) -> None:
    sys.exit(f"dependencies.py: {text}")


def mirror() -> str:
    """Returns the address of a Debian mirror, without a slash at its end; empty if none is known."""
    if named := os.environ.get("TITAN_DEBIAN_MIRROR"):
        return named.rstrip("/")
    apt = pathlib.Path("/etc/apt")
    for file in [apt / "sources.list", *sorted(apt.glob("sources.list.d/*.*"))]:
        try:
            text = file.read_text(errors="replace")
        except OSError:
            continue
        if found := re.search(r"^(?:deb |URIs:).*?(https?://\S+/debian)/?(?:\s|$)", text, re.MULTILINE):
            return found[1]
    return ""


def from_pip(source: Source) -> bytes:
    requirement = source.archive.removesuffix(".tar.gz").replace("-", "==")
    with tempfile.TemporaryDirectory() as work:
        python = sys.executable
        if subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode:
            venv = subprocess.run([python, "-m", "venv", f"{work}/venv"], capture_output=True, text=True)
            if venv.returncode:
                raise Missing(f"{python} has neither pip nor ensurepip\n{venv.stdout}{venv.stderr}")
            python = f"{work}/venv/bin/python"
        # pip runs a part of the package, so it must know the checksum itself.
        wanted = pathlib.Path(work, "wanted.txt")
        wanted.write_text(f"{requirement} --hash=sha256:{source.sha256}\n")
        words = [python, "-m", "pip", "download", "-q", "--retries", "10", "--no-deps", "--no-binary", source.name]
        run = subprocess.run([*words, "--require-hashes", "-d", work, "-r", wanted], capture_output=True, text=True)
        if run.returncode:
            raise Missing(f"pip cannot download {requirement}\n{run.stderr}")
        return pathlib.Path(work, source.archive).read_bytes()


def from_mirror(source: Source) -> bytes:
    place = mirror()
    if not place:
        raise Missing("no Debian mirror is known; TITAN_DEBIAN_MIRROR names one, by an address that ends in /debian")
    address = f"{place}/pool/main/{source.path}"
    for pause in (1, 5, 20, 0):
        try:
            with urllib.request.urlopen(address, timeout=60) as answer:
                return answer.read()
        except (OSError, http.client.HTTPException) as error:
            if not pause or getattr(error, "code", None) == 404:
                raise Missing(f"{address}: {error}; TITAN_DEBIAN_MIRROR names another mirror") from None
            time.sleep(pause)
    raise AssertionError("unreachable")


def fetched(source: Source) -> bytes:
    """Returns the bytes of an archive, from ARCHIVES, from pip or from the mirror; then it is kept. Or raises Missing."""
    kept = ARCHIVES / source.archive
    if kept.exists():
        data = kept.read_bytes()
    else:
        data = (from_pip if source.path.startswith("pip ") else from_mirror)(source)
    found = hashlib.sha256(data).hexdigest()
    if found != source.sha256:
        raise Missing(f"its SHA-256 is {found}; delete it from {ARCHIVES}, or use another mirror")
    if not kept.exists():
        ARCHIVES.mkdir(parents=True, exist_ok=True)
        part = kept.with_name(f"{kept.name}.{os.getpid()}")
        part.write_bytes(data)
        part.rename(kept)
    return data


def fetch_all() -> list[bytes]:
    """Returns all archives; if some are not to be had, names each of them."""

    def attempt(source: Source) -> bytes | str:
        try:
            return fetched(source)
        except Missing as reason:
            return f"{source.archive} (SHA-256 {source.sha256}): {reason}"

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(attempt, SOURCES))
    if missing := [text for text in found if isinstance(text, str)]:
        fail("\n".join([f"{len(missing)} archives are not to be had. Put them into {ARCHIVES}, or see what each says:", *missing]))
    return found


def unpack(stream: io.BytesIO, folder: pathlib.Path) -> None:
    with tarfile.open(fileobj=stream) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder, filter="data")
        else:
            archive.extractall(folder)


def unpack_package(data: bytes, folder: pathlib.Path) -> None:
    """Unpacks the files of a Debian package (deb(5)): an ar archive that contains a tar archive, data.tar.*."""
    position = len(b"!<arch>\n")
    while position < len(data):
        name, size = data[position : position + 16].decode().strip(" /"), int(data[position + 48 : position + 58])
        position += 60
        if name.startswith("data.tar"):
            unpack(io.BytesIO(data[position : position + size]), folder)
        position += size + size % 2


def environment() -> dict[str, str]:
    """Returns the environment with the programs that scripts/setup.sh took from pip in front."""
    return {**os.environ, "PATH": f"{ROOT / '.venv/tools'}:{os.environ['PATH']}"}


def run(words: list, log: pathlib.Path) -> None:
    with log.open("ab") as file:
        code = subprocess.run(words, stdout=file, stderr=file, env=environment()).returncode
    if code:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
        fail(f"'{words[0]}' failed ({code}):\n{tail}")


def keep_license(source: pathlib.Path, target: pathlib.Path) -> None:
    """Keeps a library's license: whoever gets a program with the library gets it, too."""
    is_license = re.compile(r"(LICEN[CS]E|COPYING|copyright)")
    texts = [path for path in sorted(source.rglob("*")) if is_license.match(path.name) and path.is_file()]
    if not texts and (source / "README").exists():
        texts = [source / "README"]  # zlib's
    if not texts:
        fail(f"{source.name} has no license text")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("\n\n".join(path.read_text(errors="replace") for path in texts))


def build(source: Source, data: bytes, work: pathlib.Path, prefix: pathlib.Path) -> None:
    """Builds a library and installs it into `prefix`, or copies a package's headers there."""
    folder = work / source.name
    if source.archive.endswith(".deb"):
        unpack_package(data, folder)
        for part in ("include", "share/cmake"):
            if (folder / "usr" / part).exists():
                shutil.copytree(folder / "usr" / part, prefix / part, dirs_exist_ok=True)
        keep_license(folder, prefix / "licenses" / source.name)
        return
    unpack(io.BytesIO(data), folder)
    (top,) = folder.iterdir()
    if source.left_out:
        (top / source.left_out).parent.mkdir(exist_ok=True)
        (top / source.left_out).touch()
    if not source.for_tests:
        keep_license(top, prefix / "licenses" / source.name)
    log = work / f"{source.name}.log"
    # Paths of this machine would make two builds differ, where a library records __FILE__.
    flags = f"-ffile-prefix-map={folder}={source.name}"
    configure = ["cmake", "-G", "Ninja", "-S", top / source.folder, "-B", folder / "build"]
    configure += ["-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=OFF", "-DCMAKE_POSITION_INDEPENDENT_CODE=ON", "-DCMAKE_INSTALL_LIBDIR=lib"]
    configure += [f"-DCMAKE_C_FLAGS={flags}", f"-DCMAKE_CXX_FLAGS={flags}", "-DCMAKE_POLICY_VERSION_MINIMUM=3.5"]
    configure += [f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_INSTALL_PREFIX={prefix}", *source.options]
    run(configure, log)
    run(["cmake", "--build", folder / "build"], log)
    run(["cmake", "--install", folder / "build", "--prefix", prefix], log)


def drop_what_is_not_linked(prefix: pathlib.Path) -> None:
    """Removes programs, documentation, and shared libraries, which the linker would prefer."""
    for part in ("bin", "sbin", "share/doc", "share/man", "man"):
        shutil.rmtree(prefix / part, ignore_errors=True)
    for file in (prefix / "lib").glob("*.so*"):
        file.unlink()


def compiler() -> str:
    name = os.environ.get("CXX", "c++")
    try:
        return subprocess.run([name, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError):
        fail(f"there is no C++ compiler '{name}', or it does not run. Install GCC 12 or later, or name a compiler in CXX")


def build_all() -> None:
    """Builds all libraries unless this script and compiler have already done so."""
    text = f"{compiler()}\n{hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()}\n"
    stamp = DEPS / "dependencies.stamp"
    if stamp.exists() and stamp.read_text() == text:
        return
    print(f"dependencies.py: building {len(SOURCES)} libraries into {DEPS}", flush=True)
    data = fetch_all()
    # CMake packages contain the prefix that they were installed to, so it is the final one; the stamp comes last.
    shutil.rmtree(DEPS, ignore_errors=True)
    with tempfile.TemporaryDirectory() as work:
        for source, archive in zip(SOURCES, data):
            build(source, archive, pathlib.Path(work), DEPS)
    drop_what_is_not_linked(DEPS)
    for header in (DEPS / "include").rglob("*"):
        os.utime(header)  # archives have old times, and what was compiled with other headers must be compiled again
    stamp.write_text(text)


def main() -> None:
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    (ROOT / "build").mkdir(exist_ok=True)
    with (ROOT / "build/dependencies.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two calls at once: the second finds the work done
        build_all()


if __name__ == "__main__":
    main()

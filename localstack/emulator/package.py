"""Packages of the programs that cargo built for this machine, in the form of `make build`: for the emulator, which runs
on it. Without symbols they are a fifth of the size.

    package.py target/debug target/packages
"""

import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile

PROGRAMS = ["keel-edge", "keel-kernel", "keel-stream", "keel-sweep", "keel-worker"]
ARCHITECTURE = {"x86_64": "x86_64", "aarch64": "arm64"}


def package(program, folder):
    """The program as `bootstrap`, stripped where the machine can."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        bootstrap = pathlib.Path(place) / "bootstrap"
        shutil.copy(program, bootstrap)
        if shutil.which("strip"):
            subprocess.run(["strip", bootstrap], check=True)
        with zipfile.ZipFile(folder / "bootstrap.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as zipped:
            zipped.write(bootstrap, "bootstrap")


if __name__ == "__main__":
    programs, packages = map(pathlib.Path, sys.argv[1:])
    for name in PROGRAMS:
        package(programs / name, packages / name)
    (packages / "architecture").write_text(ARCHITECTURE[platform.machine()] + "\n")

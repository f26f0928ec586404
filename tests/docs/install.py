"""Install as in README, from a clean copy of the tree into clean folders, and run README's programs.

    python tests/docs/install.py

The commands are README's own.  Only the prefix differs from /usr/local, so that the machine is not changed; pkg-config,
CMake and the loader get the path from the environment, not from ldconfig.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from check import start_server

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 1800.0

CMAKE = """\
cmake_minimum_required(VERSION 3.25)
project(orders LANGUAGES C)
add_executable(orders orders.c)
"""


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def clean_copy(folder: Path) -> Path:
    """The content of a clone: only files known to git."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True
    )
    for name in listed.stdout.decode().splitlines():
        target = folder / "snib" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).exists():
            shutil.copy2(ROOT / name, target)
    return folder / "snib"


class World:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tree = clean_copy(folder)
        self.readme = (self.tree / "README.md").read_text()
        self.install = self.readme[self.readme.index("## Install") : self.readme.index("## What there is")]
        self.prefix = folder / "prefix"
        self.environment = {
            **{k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")},
            "PATH": f"{self.prefix}/bin:{os.environ['PATH']}",
            "PKG_CONFIG_PATH": f"{self.prefix}/lib/pkgconfig",
            "CMAKE_PREFIX_PATH": str(self.prefix),
            "LD_LIBRARY_PATH": f"{self.prefix}/lib",
            "MANPATH": f"{self.prefix}/share/man",
            "SNIB_URL": f"unix://{folder}/server",
        }

    def code(self, text: str) -> str:
        return text.replace("redis://127.0.0.1:6379", self.environment["SNIB_URL"])

    def folder_of(self, name: str, **files: str) -> Path:
        folder = self.folder / name
        folder.mkdir()
        for file, text in files.items():
            (folder / file.replace("_", ".")).write_text(self.code(text))
        return folder

    def run(self, commands: str, where: Path, **more: str) -> None:
        commands = commands.replace("sudo cmake --install build/release", f"cmake --install build/release --prefix {self.prefix}")
        commands = commands.replace("sudo ldconfig", "true").replace("/path/to/snib", str(self.tree))
        done = subprocess.run(
            ["sh", "-exc", commands],
            cwd=where,
            env={**self.environment, **more},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            timeout=LIMIT,
        )
        if done.returncode != 0:
            raise SystemExit(f"README's installation: {commands}\n{done.stdout[-6000:]}")

    def c_and_command(self, build: str, compile_: str, program: str, cmake: str) -> None:
        self.run(build, self.tree)
        self.run(f"{compile_}\n./orders", self.folder_of("c", orders_c=program))
        folder = self.folder_of("cmake", orders_c=program, CMakeLists_txt=CMAKE + cmake)
        self.run("cmake -B build && cmake --build build && build/orders", folder)
        self.run("snib --version && snib run README -- true", self.folder)
        self.run("test -s $MANPATH/man1/snib.1", self.folder)
        self.run("! command -v man >/dev/null || man -w snib", self.folder)  # small machines have no man
        self.run("echo '#include <snib_fencing.h>' | cc -fsyntax-only $(pkg-config --cflags snib) -x c -", self.folder)

    def python(self, install: str, programs: list[str]) -> None:
        subprocess.run([sys.executable, "-m", "venv", self.folder / "venv"], check=True)
        path = f"{self.folder}/venv/bin:{self.environment['PATH']}"
        self.run(install, self.tree, PATH=path)
        for number, program in enumerate(programs):
            folder = self.folder_of(f"python{number}", orders_py=program)
            self.run("python orders.py", folder, PATH=path)

    def go(self, install: str, program: str) -> None:
        folder = self.folder_of("go", orders_go=program)
        self.run("go mod init example.org/orders", folder)
        self.run(f"{install}\ngo run .", folder, GOFLAGS="-modcacherw")


def check_packages(tree: Path, install: str) -> None:
    """Each Debian package that README names is among those which ./dev installs, and so are Python's headers in both."""
    needed = set(re.findall(r"^    apt_need ((?:[^\n\\]|\\\n)*)", (tree / "dev").read_text(), re.M)[0].split())
    named = set(re.findall(r"`([\w.+-]+-dev)`", install))
    if not {"python3-dev"} <= named <= needed:
        raise SystemExit(f"README names {sorted(named)}, ./dev installs {sorted(needed)}")


def main() -> None:
    server = os.environ.get("SNIB_TEST_SERVER") or shutil.which("redis-server")
    with tempfile.TemporaryDirectory(prefix="snib-install-") as temporary:
        process = start_server(str(server), Path(temporary), "server")
        try:
            world = World(Path(temporary))
            check_packages(world.tree, world.install)
            build, compile_, pip, go = blocks(world.install, "sh")
            (cmake,) = blocks(world.install, "cmake")
            world.c_and_command(build, compile_, blocks(world.readme, "c")[0], cmake)
            world.python(pip, blocks(world.readme, "python"))
            world.go(go, blocks(world.readme, "go")[0])
        finally:
            process.terminate()
            process.wait()
    print("README's installation: C by pkg-config and CMake, the command, Python, Go")


if __name__ == "__main__":
    main()

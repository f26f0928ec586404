"""tests/sim/planted/plant.py: a bug that is in no program is an error, and no bug that the tests have missed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/sim"))

from planted import Mutant  # noqa: E402
from planted.plant import Build, NotMade  # noqa: E402


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Of a tree that was reached through a symlink."""
    folder: Path = tmp_path_factory.mktemp("tree")
    (folder / "tree").mkdir()
    (folder / "tree/a.c").write_text("int main(void) { return 0; }\n")
    (folder / "tree/CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(a C)\nset(CMAKE_EXPORT_COMPILE_COMMANDS ON)\nadd_executable(a a.c)\n"
    )
    (folder / "link").symlink_to("tree")
    made = folder / "build"
    subprocess.run(["cmake", "-S", folder / "link", "-B", made, "-G", "Ninja"], check=True, capture_output=True)
    return Build(made, ["a"])


def test_changed(build: Build, tmp_path: Path) -> None:
    source = build.folder.parent / "tree/a.c"
    program = build.changed("a", source, "int main(void) { return 7; }\n", tmp_path)
    assert subprocess.run([program]).returncode == 7
    assert subprocess.run([build.program("a")]).returncode == 0


def test_nothing_is_changed(build: Build, tmp_path: Path) -> None:
    source = build.folder.parent / "tree/b.c"
    with pytest.raises(NotMade, match="compiles nothing of a anew for .*/b.c"):
        build.changed("a", source, "int main(void) { return 7; }\n", tmp_path)


@pytest.mark.parametrize(("file", "known"), [
    ("engine/none.c", False),
    ("lua/none.lua", True),
    ("bindings/python/none.c", True),
])
def test_nothing_is_compiled(build: Build, tmp_path: Path, file: str, known: bool) -> None:
    mutant = Mutant("a", file, "a", "b", "unit_a")
    if known:  # whose sources are others in this build, or elsewhere
        build.check(mutant, tmp_path)
        return
    with pytest.raises(NotMade, match="does not compile .*core/engine/none.c"):
        build.check(mutant, tmp_path)

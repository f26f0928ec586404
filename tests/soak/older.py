"""An older version of the library beside the present one: built from a commit, for processes that are upgraded.

The recorders are the present ones, linked with the older core, or importing the older package; in $SNIB_BUILD/soak-old.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
HISTORIES = ROOT / "tests/histories"


def _run(*words: object, cwd: Path = ROOT) -> str:
    done = subprocess.run([*map(str, words)], cwd=cwd, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words[:4]))}: {(done.stderr or done.stdout).strip()[-600:]}")
    return done.stdout.strip()


def commit_of(ref: str) -> str:
    """The commit that a name stands for; empty if there is none here."""
    try:
        return _run("git", "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
    except (RuntimeError, FileNotFoundError):
        return ""


def programs(folder: Path) -> dict[str, list[str]]:
    """The commands of the older recorders."""
    python = ["env", f"PYTHONPATH={folder / 'python'}", sys.executable, str(HISTORIES / "recorder.py")]
    return {"c.old": [str(folder / "recorder")], "python.old": python, "go.old": [str(folder / "recorder-go")]}


def build(ref: str, folder: Path) -> dict[str, list[str]]:
    """Build that version unless it is there; the commands of its recorders, or a RuntimeError with the reason."""
    commit = commit_of(ref)
    if not commit:
        raise RuntimeError(f"there is no commit {ref} here")
    stamp = folder / "commit"
    if not stamp.exists() or stamp.read_text() != commit:
        shutil.rmtree(folder, ignore_errors=True)
        source = folder / "source"
        source.mkdir(parents=True)
        _run("git", "archive", "-o", folder / "source.tar", commit)
        _run("tar", "-xf", folder / "source.tar", "-C", source)
        _core(source, folder)
        _python(source, folder)
        _go(source, folder)
        stamp.write_text(commit)
    return programs(folder)


def _core(source: Path, folder: Path) -> None:
    _run("cmake", "-S", source, "-B", folder / "core", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo")
    _run("cmake", "--build", folder / "core", "--target", "snib_static")
    words = ["-std=gnu11", "-O2", "-DSNIB_STATIC", "-I", source / "core/include", "-o", folder / "recorder"]
    libraries = [folder / "core/libsnib.a", "-lhiredis", "-luuid", "-lssl", "-lcrypto", "-pthread"]
    _run("gcc", *words, HISTORIES / "recorder.c", *libraries)


def _python(source: Path, folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    _run(*pip, "--target", folder / "python", f"--config-settings=build-dir={folder / 'python-build'}", source)


def _go(source: Path, folder: Path) -> None:
    recorder = folder / "recorder-source"
    shutil.copytree(HISTORIES / "go", recorder)
    module = recorder / "go.mod"
    module.write_text(module.read_text().replace("../../../go", str(source / "go")))
    _run("go", "build", "-C", recorder, "-o", folder / "recorder-go", ".")

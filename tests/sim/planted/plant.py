"""Plant a mutant: compile the one file it changes, and link the programs that test it.

The unchanged objects come from an ordinary build of the tree (./dev build), whose commands are repeated
for the files that the change affects.  The build itself is not modified.
"""

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from . import Mutant

ROOT = Path(__file__).resolve().parents[3]
CORE = ROOT / "core"
TEXTS = "snib__script_texts"  # sources that read this table are recompiled for a changed script


def source_of(mutant: Mutant) -> Path:
    return ROOT / mutant.file if mutant.file.startswith("bindings/") else CORE / mutant.file


def changed_text(mutant: Mutant) -> str:
    """The text of the mutant's file with the bug; exits if the change does not apply."""
    text = source_of(mutant).read_text()
    words = r"\s+".join(re.escape(word) for word in mutant.old.split())
    found = list(re.finditer(words, text))
    if len(found) != 1:
        sys.exit(f"mutants: {mutant.name}: {mutant.file} has its text {len(found)} times")
    return text[: found[0].start()] + mutant.new.strip() + text[found[0].end() :]


class NotMade(Exception):
    """The output of a compiler, a linker or Ninja that failed, or why there is nothing to compile."""


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, text=True, capture_output=True)
    if done.returncode != 0:
        raise NotMade(f"{' '.join(command)}:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def reads_texts(source: Path) -> bool:
    """Whether a file, or a header in the same folder, reads the table of scripts."""
    text = source.read_text()
    beside = (source.parent / name for name in re.findall(r'#include "(\w+\.h)"', text))
    return TEXTS in text or any(TEXTS in path.read_text() for path in beside if path.exists())


class Build:
    """A build folder of CMake and Ninja, and its build commands."""

    def __init__(self, folder: Path, targets: list[str]) -> None:
        self.folder = folder
        if not (folder / "build.ninja").exists():
            sys.exit(f"mutants: {folder} has no build: ./dev build makes it")
        run(["ninja", *targets], folder)
        entries = json.loads((folder / "compile_commands.json").read_text())
        # By object: the simulator compiles some sources separately.
        self.compile = {}
        for entry in entries:
            line = shlex.split(entry["command"])
            self.compile[line[line.index("-o") + 1]] = (Path(entry["file"]).resolve(), line)
        self.link = {target: self._link(target) for target in targets}

    def _link(self, target: str) -> list[str]:
        last = run(["ninja", "-t", "commands", target], self.folder).strip().splitlines()[-1]
        return shlex.split(last.removeprefix(": && ").removesuffix(" && :"))

    def program(self, target: str) -> Path:
        line = self.link[target]
        return self.folder / line[line.index("-o") + 1]

    def _objects(self, target: str, is_wanted: Callable[[Path], bool]) -> dict[Path, str]:
        """The sources to be recompiled for the target, and their objects."""
        own = set(self.link[target])
        touched: dict[Path, str] = {}
        for made, (source, _) in self.compile.items():
            if is_wanted(source) and (made in own or (source not in touched and source.is_relative_to(CORE))):
                touched[source] = made
        return touched

    def planted(self, mutant: Mutant, target: str, work: Path) -> Path:
        """The target with the mutant, built in the folder `work`."""
        work.mkdir(parents=True, exist_ok=True)
        if mutant.file.endswith(".lua"):
            embed(planted_scripts(mutant, work), work)
            return self._made(target, self._objects(target, reads_texts), None, "", work)
        return self.changed(target, source_of(mutant), changed_text(mutant), work)

    def check(self, mutant: Mutant, work: Path) -> None:
        """Raise NotMade if the changed source does not compile; no program is made."""
        source = source_of(mutant)
        line = next((line for other, line in self.compile.values() if other == source), None)
        if line is None:
            if mutant.file.endswith(".lua") or mutant.file.startswith("bindings/"):
                return
            raise NotMade(f"{self.folder} does not compile {source}")
        (work / source.name).write_text(changed_text(mutant))
        line = [line[0], f"-I{work}", *line[1:], f"-I{source.parent}", "-w", "-fsyntax-only"]
        line[line.index("-c") + 1] = str(work / source.name)
        del line[line.index("-o") : line.index("-o") + 2]
        run(line, self.folder)

    def changed(self, target: str, source: Path, text: str, work: Path) -> Path:
        """The target with another text of one source, made in the folder `work`."""
        return self._made(target, self._objects(target, lambda other: other == source), source, text, work)

    def _made(self, target: str, touched: dict[Path, str], changed: Path | None, text: str, work: Path) -> Path:
        """The target, linked with new objects of the touched sources, of which one may have another text."""
        if not touched:  # it would be the program without the bug
            raise NotMade(f"{self.folder} compiles nothing of {target} anew{f' for {changed}' if changed else ''}")
        link = list(self.link[target])
        for source, made in touched.items():
            new = str(work / made.replace("/", "_"))
            line = list(self.compile[made][1])
            line[line.index("-o") + 1] = new
            line[1:1] = [f"-I{work}"]
            if source == changed:
                (work / source.name).write_text(text)
                line[line.index("-c") + 1] = str(work / source.name)
                line += [f"-I{source.parent}"]
            if not Path(new).exists():  # for another target
                run([*line, "-w", "-g0"], self.folder)
            if made in link:
                link[link.index(made)] = new
            else:  # it replaces the one in the archive
                link.insert(link.index("-o") + 2, new)
        out = work / Path(link[link.index("-o") + 1]).name
        link[link.index("-o") + 1] = str(out)
        run([*link, "-Wl,--strip-debug"], self.folder)
        return out


def planted_scripts(mutant: Mutant, work: Path) -> Path:
    """A folder with all scripts, one of them with the bug."""
    scripts = work / "lua"
    if not scripts.exists():
        shutil.copytree(CORE / "lua", scripts)
        (scripts / Path(mutant.file).name).write_text(changed_text(mutant))
    return scripts


def embed(scripts: Path, work: Path) -> None:
    command = ["cmake", f"-DDIR={scripts}", f"-DOUT={work / 'snib_scripts.h'}"]
    run([*command, "-P", str(scripts / "embed.cmake")], work)

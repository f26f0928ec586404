"""Plant a mutant: compile the one file it changes, and link the programs that test it.

The unchanged objects are those of an ordinary build of the tree (./dev build), whose own commands are
repeated for what the change touches.  The build itself stays as it is.
"""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from . import Mutant

ROOT = Path(__file__).resolve().parents[3]
CORE = ROOT / "core"
TEXTS = "snib__script_texts"  # who reads this table is compiled anew for another script


def source_of(mutant: Mutant) -> Path:
    return ROOT / mutant.file if mutant.file.startswith("bindings/") else CORE / mutant.file


def changed_text(mutant: Mutant) -> str:
    """The text of the mutant's file with the bug; ends the program if it does not fit."""
    text = source_of(mutant).read_text()
    words = r"\s+".join(re.escape(word) for word in mutant.old.split())
    found = list(re.finditer(words, text))
    if len(found) != 1:
        sys.exit(f"mutants: {mutant.name}: {mutant.file} has its text {len(found)} times")
    return text[: found[0].start()] + mutant.new.strip() + text[found[0].end() :]


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"mutants: {' '.join(command)}:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def reads_texts(source: Path) -> bool:
    """Whether a file, or a header that lies beside it, reads the table of scripts."""
    text = source.read_text()
    beside = (source.parent / name for name in re.findall(r'#include "(\w+\.h)"', text))
    return TEXTS in text or any(TEXTS in path.read_text() for path in beside if path.exists())


class Build:
    """A build folder of CMake and Ninja, and the commands it is made with."""

    def __init__(self, folder: Path, targets: list[str]) -> None:
        self.folder = folder
        if not (folder / "build.ninja").exists():
            sys.exit(f"mutants: {folder} has no build: ./dev build makes it")
        run(["ninja", *targets], folder)
        commands = json.loads((folder / "compile_commands.json").read_text())
        self.compile = {Path(entry["file"]): shlex.split(entry["command"]) for entry in commands}
        self.object = {file: line[line.index("-o") + 1] for file, line in self.compile.items()}
        self.link = {target: self._link(target) for target in targets}

    def _link(self, target: str) -> list[str]:
        last = run(["ninja", "-t", "commands", target], self.folder).strip().splitlines()[-1]
        return shlex.split(last.removeprefix(": && ").removesuffix(" && :"))

    def program(self, target: str) -> Path:
        line = self.link[target]
        return self.folder / line[line.index("-o") + 1]

    def _touched(self, mutant: Mutant, target: str) -> list[Path]:
        """The sources of which the target's objects are not those of the unchanged tree."""
        if not mutant.file.endswith(".lua"):
            return [source_of(mutant)]
        own = set(self.link[target])
        return [
            source
            for source, made in self.object.items()
            if (made in own or source.is_relative_to(CORE)) and reads_texts(source)
        ]

    def planted(self, mutant: Mutant, target: str, work: Path) -> Path:
        """The target with the mutant, made in the folder `work`."""
        work.mkdir(parents=True, exist_ok=True)
        text = changed_text(mutant)
        if mutant.file.endswith(".lua"):
            embed(planted_scripts(mutant, work), work)
        line = list(self.link[target])
        for number, source in enumerate(self._touched(mutant, target)):
            made = str(work / f"{target.replace('/', '_')}_{number}.o")
            if source == source_of(mutant):
                (work / source.name).write_text(text)
            compile_line = list(self.compile[source])
            compile_line[compile_line.index("-o") + 1] = made
            compile_line[1:1] = [f"-I{work}"]
            at = compile_line.index("-c") + 1
            if source == source_of(mutant):
                compile_line[at] = str(work / source.name)
                compile_line += [f"-I{source.parent}"]
            run([*compile_line, "-w"], self.folder)
            if self.object[source] in line:
                line[line.index(self.object[source])] = made
            else:  # it stands for the one in the archive
                line.insert(line.index("-o") + 2, made)
        out = work / Path(line[line.index("-o") + 1]).name
        line[line.index("-o") + 1] = str(out)
        run(line, self.folder)
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

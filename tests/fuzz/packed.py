"""The corpora in the tree: one text file a target, corpus/TARGET.txt, with one input a line.

Inputs that are texts are written as Python writes them, those that are programs in hexadecimal, a step a word.
corpus/TARGET-kept.txt is written by hand: what defects that were found, or planted mistakes, need again.
"""

from pathlib import Path

HERE = Path(__file__).resolve().parent
TEXTS = ("reply", "url", "names")
FILES_MAX = 200  # inputs of a target, ...
BYTES_MAX = 100_000  # ... and bytes of its file


def encode(target: str, data: bytes) -> str:
    if target in TEXTS:
        return data.decode("latin-1").encode("unicode_escape").decode("ascii")
    return " ".join(data[i : i + 4].hex() for i in range(0, len(data), 4))


def decode(target: str, line: str) -> bytes:
    if target in TEXTS:
        return line.encode("ascii").decode("unicode_escape").encode("latin-1")
    return bytes.fromhex(line)


def unpack(target: str, folder: Path) -> None:
    lines: list[str] = []
    for path in (HERE / "corpus" / f"{target}.txt", HERE / "corpus" / f"{target}-kept.txt"):
        lines += path.read_text().splitlines() if path.exists() else []
    for i, line in enumerate(lines):
        (folder / f"{i:03}").write_bytes(decode(target, line))


def features(control: Path) -> tuple[list[Path], dict[int, set[int]]]:
    """What libFuzzer's merge has noted: the files, and for each what it covers."""
    lines = control.read_text().splitlines()
    files = [Path(line) for line in lines[2 : 2 + int(lines[0])]]
    covered: dict[int, set[int]] = {}
    for line in lines[2 + len(files) :]:
        word, number, *rest = line.split()
        if word in ("FT", "COV"):
            # Edges and features are numbered apart.
            covered.setdefault(int(number), set()).update(int(one) * 2 + (word == "COV") for one in rest)
    return files, covered


def pack(target: str, control: Path) -> str:
    """Choose those that add most for their length, and write the file."""
    files, covered = features(control)
    lines = {i: encode(target, files[i].read_bytes()) for i in covered}
    chosen: list[int] = []
    known: set[int] = set()
    room = BYTES_MAX
    while len(chosen) < FILES_MAX:
        worth = {i: len(covered[i] - known) / (len(lines[i]) + 40) for i in covered if len(lines[i]) < room}
        best = max(worth, key=lambda i: worth[i], default=None)
        if best is None or worth[best] == 0:
            break
        chosen.append(best)
        known |= covered.pop(best)
        room -= len(lines[best]) + 1
    kept = sorted({lines[i] for i in chosen}, key=lambda line: (len(line), line))
    (HERE / "corpus").mkdir(exist_ok=True)
    (HERE / "corpus" / f"{target}.txt").write_text("".join(line + "\n" for line in kept))
    every = len(known.union(*covered.values()))
    return f"{len(kept)} inputs in {BYTES_MAX - room} bytes cover {len(known)} of {every} features"

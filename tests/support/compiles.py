#!/usr/bin/env python3
"""Whether files are Python for the version that runs this.

    compiles.py FILE...    prints what is wrong; fails if something is

ast.parse(feature_version=...) of a newer version does not find everything: not quotes in an f-string that are those around
it, for example.  A module that older versions do not have must not be imported without a condition.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SINCE = {"tomllib": (3, 11), "annotationlib": (3, 14), "compression": (3, 14)}


def _modules(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []


def problems(path: str) -> Iterator[str]:
    try:
        tree = ast.parse(Path(path).read_bytes(), path)
        compile(tree, path, "exec", dont_inherit=True)  # which finds more, a return outside a function
    except SyntaxError as error:
        yield f"{path}:{error.lineno}: {error.msg}"
        return
    for node in tree.body:
        for name in _modules(node):
            if sys.version_info < SINCE.get(name.partition(".")[0], (3,)):
                yield f"{path}:{node.lineno}: there is no module {name}"


if __name__ == "__main__":
    found = [problem for path in sys.argv[1:] for problem in problems(path)]
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    sys.exit("\n".join(f"{problem}, in Python {version}" for problem in found) if found else 0)

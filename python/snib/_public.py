"""Show classes under the public modules that programs import them from."""

from __future__ import annotations

from collections.abc import Iterable


def name_classes(module: str, things: Iterable[object]) -> None:
    """Show classes of private modules as the public module's, for example in tracebacks."""
    for thing in things:
        if isinstance(thing, type) and thing.__module__.startswith(f"{module}._"):
            thing.__module__ = module

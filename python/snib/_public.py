"""The names that programs know: those of the modules that they import from."""

from __future__ import annotations

from collections.abc import Iterable


def name_classes(module: str, things: Iterable[object]) -> None:
    """Show classes of private modules, in tracebacks for one, as those of the public module."""
    for thing in things:
        if isinstance(thing, type) and thing.__module__.startswith(f"{module}._"):
            thing.__module__ = module

"""Which process is behind an owner, as a value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Identity:
    """What the process behind an owner says about itself; None: it does not say."""

    host: str | None = None
    pid: int | None = None
    program: str | None = None
    label: str | None = None  # the option of its client
    since: float | None = None  # when it opened its client: seconds since 1970, by its clock
    held_since: float | None = None  # when the owner acquired its hold, if that is among its client's 16 oldest
    held_at: str | None = None  # with its option debug: where in the program it was acquired
    held_by: str | None = None  # ... and by which thread or task, such as "task Task-3"
    losses: int = 0  # holds that its client has lost since it was opened


def make_identity(lines: list[str], owner: str) -> Identity | None:
    """From the texts of snib_client_identity(); unknown words of a newer core are ignored."""
    found: dict[str, str] = {}
    held_since = held_at = held_by = None
    _, _, number = owner.partition(":")
    for line in lines:
        word, _, rest = line.partition(" ")
        found[word] = rest
        held, _, told = rest.partition(" ")
        if not number or held != number:
            continue
        if word == "held":
            held_since = _number(told)
        elif word == "at":
            held_at = told or held_at
        elif word == "by":
            held_by = told or held_by
    pid, since = _number(found.get("pid", "")), _number(found.get("since", ""))
    losses = _number(found.get("losses", ""))
    identity = Identity(
        host=found.get("host"),
        pid=pid,
        program=found.get("program"),
        label=found.get("label"),
        since=None if since is None else float(since),
        held_since=None if held_since is None else float(held_since),
        held_at=held_at,
        held_by=held_by,
        losses=losses or 0,
    )
    return None if identity == Identity() else identity


def _number(text: str) -> int | None:
    """Anybody may have written the text."""
    return int(text) if len(text) < 19 and text.isascii() and text.isdigit() else None

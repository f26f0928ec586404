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
    losses: int = 0  # holds that its client has lost since it was opened


def make_identity(lines: list[str], owner: str) -> Identity | None:
    """From the texts of snib_client_identity(); unknown words of a newer core are ignored."""
    found: dict[str, str] = {}
    held_since = None
    _, _, number = owner.partition(":")
    for line in lines:
        word, _, rest = line.partition(" ")
        found[word] = rest
        held, _, seconds = rest.partition(" ")
        if word == "held" and number and held == number:
            held_since = _number(seconds)
    pid, since = _number(found.get("pid", "")), _number(found.get("since", ""))
    losses = _number(found.get("losses", ""))
    identity = Identity(
        host=found.get("host"),
        pid=pid,
        program=found.get("program"),
        label=found.get("label"),
        since=None if since is None else float(since),
        held_since=None if held_since is None else float(held_since),
        losses=losses or 0,
    )
    return None if identity == Identity() else identity


def _number(text: str) -> int | None:
    """Anybody may have written the text."""
    return int(text) if len(text) < 19 and text.isascii() and text.isdigit() else None

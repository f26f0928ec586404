"""The root of all exceptions of this package."""

from __future__ import annotations


class Error(Exception):
    """Base class of what clients, locks and holds raise, except TypeError.

    code           the number in snib.h
    retryable      the same call may succeed later (the client itself repeats what can be repeated); False if a
                   release failed, so that a program which retries does not repeat the work that it did under the lock
    maybe_applied  the server may have carried out the request; the client cleans up what it can
    os_error       the errno behind it, or 0
    name, kind     of the lock, if the error is about one; kind is "mutex", "fair", "read", ...
    reason         of a loss: "expired", "taken", "deleted", "unreachable", "max hold", "closed"
                   or "failover"
    server         the server's own words, without secrets, if it answered
    """

    code: int = 0
    retryable: bool = False
    maybe_applied: bool = False
    os_error: int = 0
    name: str | None = None
    kind: str | None = None
    reason: str | None = None
    server: str | None = None

"""What snib.prometheus and snib.opentelemetry say of a client's statistics."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

# By the names of Stats, whose meaning snib.h explains.
COUNTERS = {
    "acquisitions": "Holds granted, without re-entries",
    "reentries": "Re-entries of an owner, without a round trip",
    "releases": "Holds released",
    "waits": "Acquisitions that had to wait",
    "handovers": "Locks passed on to another waiter of this process",
    "timeouts": "Waits that ended at their time limit",
    "cancels": "Operations that were cancelled",
    "renewals": "Holds renewed",
    "renewal_commands": "Commands that renewed holds",
    "renewal_failures": "Renewals that failed and were retried",
    "abandoned": "Holds dropped without a release",
    "rechecks": "Attempts of waiters without a wake-up message",
    "messages": "Wake-up messages received",
    "polling": "Waits that poll because their subscription was refused",
    "connects": "Connections made",
    "reconnects": "Connections made anew",
    "commands": "Commands sent, without handshakes",
    "writes": "System calls that sent commands",
    "reads": "System calls that received replies",
    "wakes": "Threads and queues woken",
    "clock_moves": "Times that the server's clock was set, or ran at another rate",
    "debug_warnings": "Mistakes in the use of locks that the option debug has found",
}
REASONS = ("expired", "taken", "deleted", "unreachable", "max_hold", "closed", "failover")
GAUGES = {
    "held": ("snib_held", 1, "Current holds"),
    "waiting": ("snib_waiting", 1, "Current waiters"),
    "memory": ("snib_memory_bytes", 1, "Memory in use by the client, buffers included"),
    "watchdog_late_us": (
        "snib_watchdog_late_seconds",
        1e-6,
        "The longest delay of a due renewal so far",
    ),
}


def cumulated(counts: Sequence[int]) -> list[tuple[str, int]]:
    """Bucket i counts times below 2^(i+1) microseconds; the last one also those above."""
    bounds = [repr(2 ** (i + 1) / 1e6) for i in range(len(counts) - 1)]
    return list(zip([*bounds, "+Inf"], itertools.accumulate(counts), strict=True))

"""The ways in which servers are put together here; each is a column of the table for some versions of Redisson."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mode:
    title: str
    shape: str  # of the deployment
    tls: bool = False
    sharded: bool = False  # by which kind of channel a release is told
    classic: bool = False  # although the servers know sharded ones
    all_only: bool = False  # not in the short run
    # The newest, and the oldest that is advised.
    versions: tuple[str, ...] = ("4.7.0", "3.24.3")


# A Redisson below 3.22.0 knows no sharded channels; from 3.29.0 on it can be told to leave them alone.
MODES = {
    "sentinel": Mode("sentinel", "sentinel"),
    "tls": Mode("TLS", "single", tls=True),
    "cluster": Mode("cluster", "cluster", sharded=True),
    "classic": Mode("cluster, classic", "cluster", classic=True, versions=("4.7.0", "3.21.3")),
    "sentinel-tls": Mode("sentinel, TLS", "sentinel", tls=True, all_only=True),
    "cluster-tls": Mode("cluster, TLS", "cluster", tls=True, sharded=True, all_only=True),
}

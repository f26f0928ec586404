"""The kinds of deployment tested here; each is a column of the table for some versions of Redisson."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mode:
    title: str
    shape: str  # of the deployment
    tls: bool = False
    sharded: bool = False  # which kind of channel announces a release
    classic: bool = False  # classic channels although the servers support sharded ones
    all_only: bool = False  # skipped in the short run
    # The newest version, and the oldest recommended one.
    versions: tuple[str, ...] = ("4.7.0", "3.24.3")


# Redisson below 3.22.0 does not support sharded channels; from 3.29.0 on they can be switched off.
MODES = {
    "sentinel": Mode("sentinel", "sentinel"),
    "tls": Mode("TLS", "single", tls=True),
    "cluster": Mode("cluster", "cluster", sharded=True),
    "classic": Mode("cluster, classic", "cluster", classic=True, versions=("4.7.0", "3.21.3")),
    "sentinel-tls": Mode("sentinel, TLS", "sentinel", tls=True, all_only=True),
    "cluster-tls": Mode("cluster, TLS", "cluster", tls=True, sharded=True, all_only=True),
}

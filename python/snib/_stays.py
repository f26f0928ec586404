"""Objects that belong to one process and cannot be copied."""

from __future__ import annotations

from typing import NoReturn, SupportsIndex


def stays(self: object, protocol: SupportsIndex, /) -> NoReturn:
    """For use as __reduce_ex__: a dropped copy of a hold would abandon the hold."""
    raise TypeError(
        f"a {type(self).__module__}.{type(self).__name__} cannot be copied or pickled: "
        "it belongs to the process that made it"
    )

"""What belongs to one process, and is there once."""

from __future__ import annotations

from typing import NoReturn, SupportsIndex


def stays(self: object, protocol: SupportsIndex, /) -> NoReturn:
    """As __reduce_ex__: a copy of a hold would abandon it as it is dropped."""
    raise TypeError(
        f"a {type(self).__module__}.{type(self).__name__} cannot be copied or pickled: "
        "it belongs to the process that made it"
    )

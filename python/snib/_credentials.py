"""Credentials, requested anew at each connect.

The core never calls into Python: a thread of the core would have to wait for the interpreter, which
never lets it go at shutdown.  The core puts a request into a queue; a Python thread reads it and
starts another one that calls the program's function, which may be slow.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Union

from . import _core, _log, _native
from ._codes import CredentialsError
from ._error import Error
from ._reader import Reader

if TYPE_CHECKING:
    from ._client import BaseClient

_ASKED = 4  # snib_event_kind
_VALID_MAX = 2**53  # seconds; its milliseconds still fit into 64 bits


class Credentials(NamedTuple):
    """What a client logs in with: a password, and perhaps its lifetime and a user name.

    valid     seconds, counted from the request, until the password expires: all connections log in
              again before that; None: it has no known end
    username  None: the one from the options or the URL
    """

    password: str
    valid: float | None = None
    username: str | None = None

    def __repr__(self) -> str:
        return f"Credentials(password='***', valid={self.valid!r}, username={self.username!r})"


Answer = Union[Credentials, str]
Ask = Callable[[], Answer]

_reader = Reader("snib credentials")


def begin(client: BaseClient) -> None:
    """Called before a client's first operation.

    Raises CredentialsError if there is no descriptor or thread left.
    """
    _native.without_signals(lambda: _begin(client))  # whose handlers may raise an OSError: TimeoutError


def _begin(client: BaseClient) -> None:
    queue = _core.queue_new(client._handle)
    try:
        client._login_queue = queue
        _core.client_credentials(client._handle, queue)
        _reader.add(client, queue, _deliver)
    except BaseException as error:
        client._login_queue = None  # nobody reads it: the next operation begins anew
        if isinstance(error, (OSError, RuntimeError)) and not isinstance(error, Error):
            raise CredentialsError(f"cannot request credentials: {error}") from error
        raise


def _deliver(client: BaseClient) -> None:
    queue = client._login_queue
    if queue is None:
        return
    try:
        events = _core.queue_drain(queue, [])
    except Error:  # the client is being closed
        return
    for kind, number, _, _ in events:
        if kind == _ASKED:
            _start(client, number)


def _start(client: BaseClient, number: int) -> None:
    try:
        _native.start(_answer, (client, number), "snib credentials")
    except RuntimeError as error:  # no more threads
        _refuse(client, number, error)


def _refuse(client: BaseClient, number: int, error: BaseException) -> None:
    why = type(error).__name__
    with contextlib.suppress(Exception):  # raised by the exception's __str__
        why = f"{why}: {error}".removesuffix(": ")
    clean = why.replace("\0", "?").encode("utf-8", "replace").decode()
    _core.client_login(client._handle, number, None, "", 0, clean)


def _answer(client: BaseClient, number: int) -> None:
    ask = client._credentials
    assert ask is not None
    try:
        answer = ask()
        if isinstance(answer, str):
            answer = Credentials(answer)
        if not isinstance(answer, Credentials):
            raise TypeError(
                f"credentials must give a snib.Credentials or a str, not {type(answer).__name__}"
            )
        _core.client_login(
            client._handle, number, answer.username, answer.password, _valid_ms(answer.valid), None
        )
    except BaseException as error:  # which would end this thread alone, and the core would wait for ever
        _refuse(client, number, error)
        _log.write(client, logging.WARNING, "no credentials", exc_info=error)


def _valid_ms(valid: float | None) -> int:
    if valid is None:
        return 0
    if not 0 < valid < math.inf:
        raise ValueError(f"credentials must be valid for some seconds, not {valid!r}")
    return max(1, int(min(valid, _VALID_MAX) * 1000))

"""URLs and options: valid ones are accepted, all others refused without being shown."""

from __future__ import annotations

import inspect
import re
import urllib.parse
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import snib
import snib.aio

ROOT = Path(__file__).parents[2]
CANARY = "Canary7"
REFUSED = (snib.InvalidURL, snib.InvalidOption, snib.InvalidLease, snib.NotSupported)

LABEL = st.text("abcdefghijklmnopqrstuvwxyz0123456789_-", min_size=1, max_size=12).filter(
    re.compile(r"[a-z0-9_]([a-z0-9-]{0,10}[a-z0-9])?").fullmatch
)
NAME = st.lists(LABEL, min_size=1, max_size=4).map(".".join)
IPV6 = st.ip_addresses(v=6).map(lambda address: f"[{address}]")
HOST = st.one_of(NAME, st.ip_addresses(v=4).map(str), IPV6)
PORT = st.one_of(st.just(""), st.integers(1, 65535).map(lambda port: f":{port}"))
SECRET = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=20)


USER = st.one_of(st.none(), SECRET)
TIMES = st.dictionaries(
    st.sampled_from(["lease", "patience", "connect_timeout", "reply_timeout", "try_timeout"]),
    st.sampled_from(["1s", "2", "2.5", "700ms", "1m", "1h", "0.25h"]),
)
PATH = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1, max_size=30)
DATABASE = st.one_of(st.sampled_from(["", "/"]), st.integers(0, 2**31 - 1).map(lambda n: f"/{n}"))
HOSTS = st.lists(st.tuples(HOST, PORT).map("".join), min_size=1, max_size=32, unique_by=str.lower)
SERVICE = st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True)


def quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="")


@st.composite
def userinfos(draw: st.DrawFn) -> str:
    user, password = draw(USER), draw(USER)
    if user is None and password is None:
        return ""
    return quoted(user or "") + ("" if password is None else ":" + quoted(password)) + "@"


USERINFO = userinfos()


@st.composite
def good_urls(draw: st.DrawFn) -> str:
    """URLs of servers that this build can connect to."""
    user, options = draw(USERINFO), draw(TIMES)
    if draw(st.booleans()):
        scheme = draw(st.sampled_from(["unix", "UNIX", "redis+unix", "valkey+unix"]))
        url = f"{scheme}://{user}/{quoted(draw(PATH))}"
    else:
        scheme = draw(st.sampled_from(["redis", "Redis", "valkey"]))
        url = f"{scheme}://{user}{draw(HOST)}{draw(PORT)}{draw(DATABASE)}"
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return f"{url}?{query}" if query else url


@settings(max_examples=300, deadline=None)
@given(good_urls())
def test_urls_by_the_rules(url: str) -> None:
    snib.connect(url).close()


@st.composite
def many_hosts(draw: st.DrawFn) -> str:
    tls = draw(st.sampled_from(["redis", "rediss", "valkey", "valkeys"]))
    hosts = draw(HOSTS)
    hosts = [host for host in hosts if host not in {"".join(h.rsplit(":", 1)[:-1]) for h in hosts}]
    hosts = hosts or ["host"]
    if draw(st.booleans()):
        return f"{tls}+cluster://{draw(USERINFO)}{','.join(hosts)}{draw(st.sampled_from(['', '/', '/0']))}"
    return f"{tls}+sentinel://{draw(USERINFO)}{','.join(hosts)}/{quoted(draw(SERVICE))}"


@settings(max_examples=200, deadline=None)
@given(many_hosts())
def test_urls_of_several_hosts(url: str) -> None:
    """They are understood, whether or not this build can connect to them."""
    try:
        snib.connect(url).close()
    except snib.NotSupported:
        pass


PIECES = [
    *("redis://", "unix://", "rediss://", "redis+sentinel://", "redis+cluster://", "http://"),
    *("host", "[::1]", "127.0.0.1", "/", "//", "?", "&", "=", "#", "@", ":", ",", "%", "%41", "%zz", "%00"),
    *("6379", "0", "-1", "65536", "2147483648", "lease", "lease=", "1s", "db=1", "password=", "x=", " "),
    *("\n", "\0", "\x7f", "é", "\ud800", "user", CANARY),
]
# A letter for each piece: a text is drawn at once, a list piece by piece.
LETTERS = {chr(ord("0") + i): piece for i, piece in enumerate(PIECES)}


@settings(max_examples=1500, deadline=None)
@given(st.text(list(LETTERS), max_size=14).map(lambda letters: "".join(map(LETTERS.__getitem__, letters))))
@example(f"redis://u:{CANARY}?x=y@h")
@example(f"redis://u:1?{CANARY}=y@h")
@example(f"redis://u:1/{CANARY}@h")
@example(f"redis://h?{CANARY}=1")
@example(f"redis://h?lease={CANARY}")
def test_any_text(url: str) -> None:
    """Any text is accepted or refused, and a refused one is never shown."""
    try:
        snib.connect(url).close()
    except REFUSED as error:
        assert CANARY not in str(error)
        assert "\n" not in str(error)


UNITS = {"": 1000, "ms": 1, "s": 1000, "m": 60000, "h": 3600000}


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**9), st.integers(0, 999), st.booleans(), st.sampled_from(list(UNITS)))
def test_times_of_a_url(whole: int, part: int, has_part: bool, unit: str) -> None:
    text = f"{whole}.{part:03}{unit}" if has_part else f"{whole}{unit}"
    number = whole * 1000 + (part if has_part else 0)
    ms = (number * UNITS[unit] + 500) // 1000
    if 100 <= ms <= 86400000:
        snib.connect(f"redis://host?lease={text}").close()
    else:
        with pytest.raises(snib.InvalidLease):
            snib.connect(f"redis://host?lease={text}")


def test_sentences_are_those_of_the_core() -> None:
    """A keyword is refused with the same sentence as the URL's option."""
    values = [("patience", 0), ("recheck", 61), ("max_hold", 90000), ("waiters_max", 0), ("handover_max", -1)]
    for name, value in values:
        with pytest.raises(snib.InvalidOption) as by_keyword:
            snib.connect("redis://host", **{name: value})
        with pytest.raises(snib.InvalidOption) as by_url:
            snib.connect(f"redis://host?{name}={value}")
        assert str(by_keyword.value) == str(by_url.value)


def test_keywords_are_those_of_the_table() -> None:
    table = (ROOT / "core/api/options.def").read_text()
    ready = re.findall(r"^X\((\w+), \w+, \w+, READY,", table, re.M)
    for connect in (snib.connect, snib.aio.connect):
        parameters = inspect.signature(connect).parameters
        assert [*parameters] == ["url", *ready, "credentials"]
        assert all(p.kind is p.KEYWORD_ONLY for name, p in parameters.items() if name != "url")
        assert connect.__doc__
        assert all(re.search(rf"^ *{name} ", connect.__doc__, re.M) for name in ready)


def test_options_of_the_future_are_no_keywords_yet() -> None:
    table = (ROOT / "core/api/options.def").read_text()
    for name in re.findall(r"^X\((\w+), \w+, \w+, LATER,", table, re.M):
        with pytest.raises(TypeError):
            snib.connect(**{name: None})


def test_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SNIB_URL", f"unix://{tmp_path}/none?patience=100ms")
    for url in [(), (None,)]:
        with snib.connect(*url) as client, pytest.raises(snib.Unreachable, match="/none"):
            client.ping()
    monkeypatch.setenv("SNIB_URL", "redis://host:0")
    with pytest.raises(snib.InvalidURL, match="^SNIB_URL: the "):
        snib.connect()
    with pytest.raises(snib.InvalidURL, match="^SNIB_URL: the "):
        snib.aio.connect()
    snib.connect("redis://host").close()
    monkeypatch.setenv("SNIB_URL", "")
    snib.connect().close()
    monkeypatch.delenv("SNIB_URL")
    snib.connect().close()


def test_the_program_goes_before_the_url(tmp_path: Path) -> None:
    import time

    url = f"unix://{tmp_path}/none?patience=60s"
    began = time.monotonic()
    with snib.connect(url, patience=0.1) as client, pytest.raises(snib.Unreachable):
        client.ping()
    assert time.monotonic() - began < 30


def test_servers_are_told_apart() -> None:
    """Regardless of how their names are spelled; databases of one server form no quorum."""

    def quorum(*urls: str) -> None:
        clients = [snib.connect(url) for url in urls]
        try:
            snib.QuorumLock([client.lock("name") for client in clients])
        finally:
            for client in clients:
                client.close()

    quorum("redis://a", "redis://a:1", "redis://b")
    for urls in [
        ("redis://a", "redis://A:6379", "redis://b"),
        ("redis://a/1", "redis://a/2", "redis://b"),
        ("unix:///s", "redis+unix:///s?db=1", "redis://b"),
    ]:
        with pytest.raises(snib.InvalidArgument, match="same server"):
            quorum(*urls)

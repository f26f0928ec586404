"""TLS, and several OpenSSLs in one process: those of snib, ssl, psycopg and cryptography."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import snib
import snib.aio
from support import PATIENT, Server, eventually, free_port

CERTS = Path(__file__).parent.parent / "support" / "certs.sh"
DEBIAN = Path("/usr/bin/redis-check-rdb")  # the server under another name; other builds may lack TLS
ROUNDS = 30

pytestmark = pytest.mark.skipif(not CERTS.exists() or not shutil.which("openssl"), reason="needs openssl")


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certs")
    subprocess.run([str(CERTS), str(folder)], check=True)
    return folder


@pytest.fixture(scope="module")
def port(certs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with pytest.MonkeyPatch.context() as patch:
        if DEBIAN.exists():
            (certs / "redis-server").symlink_to(DEBIAN)
            patch.setenv("SNIB_TEST_SERVER", str(certs / "redis-server"))
        port = free_port()
        files = {"--tls-cert-file": "server.crt", "--tls-key-file": "server.key", "--tls-ca-cert-file": "ca.crt"}
        options = [text for name, file in files.items() for text in (name, str(certs / file))]
        server = Server(
            tmp_path_factory.mktemp("tls"), "--tls-port", str(port), "--tls-auth-clients", "no", *options
        )
    yield port
    server.end()


def connect(port: int, **options) -> snib.Client:
    return snib.connect(f"rediss://localhost:{port}?{PATIENT}", **options)


def test_lock(port: int, certs: Path) -> None:
    with connect(port, tls_ca=certs / "ca.crt") as client:
        for _ in range(ROUNDS):
            with client.lock("tls"):
                pass


def test_asyncio(port: int, certs: Path) -> None:
    async def work() -> None:
        async with snib.aio.connect(f"rediss://localhost:{port}?tls_ca={certs}/ca.crt&{PATIENT}") as client:
            for _ in range(ROUNDS):
                async with client.lock("tls"):
                    pass

    asyncio.run(work())


def test_refused(port: int, certs: Path) -> None:
    with connect(port, tls_ca=str(certs / "strange.crt"), patience=600.0) as client:
        with pytest.raises(snib.TLSError, match="not signed by the given CA") as caught:
            client.lock("tls").acquire()
        assert isinstance(caught.value, snib.NetworkError)
        assert not caught.value.retryable


def test_no_check_of_certificates_is_told(port: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "snib"), connect(port, tls_insecure=True) as client:
        client.ping()
        eventually(lambda: "tls_insecure: certificates are not verified" in caplog.text)


def test_secrets_stay(port: int, certs: Path) -> None:
    options = {"tls_cert": certs / "client.crt", "tls_key": certs / "client.enc"}
    with connect(port, tls_ca=certs / "ca.crt", tls_key_password="tweety", **options) as client:
        with pytest.raises(snib.TLSError, match="does not open") as caught:
            client.lock("tls").acquire()
        assert "tweety" not in f"{caught.value!r} {client!r}"
    with connect(port, tls_ca=certs / "ca.crt", tls_key_password="canary", **options) as client:
        with client.lock("tls"):
            assert "canary" not in repr(client)


@pytest.mark.parametrize(
    ("host", "named", "sent"),
    [("localhost", "", "localhost"), ("127.0.0.1", "", None), ("127.0.0.1", "localhost", "localhost")],
)
def test_server_name_is_sent(certs: Path, host: str, named: str, sent: str | None) -> None:
    """So that a proxy can choose the certificate; an address is no name, says RFC 6066."""
    seen: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certs / "server.crt", certs / "server.key")
    context.sni_callback = lambda _, name, __: seen.append(name)

    def serve(listener: socket.socket) -> None:
        while not seen:
            with contextlib.suppress(OSError), listener.accept()[0] as plain:
                context.wrap_socket(plain, server_side=True).close()

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        serving = pool.submit(serve, listener)
        url = f"rediss://{host}:{listener.getsockname()[1]}?patience=1s"
        options = {"tls_server_name": named} if named else {}
        with snib.connect(url, tls_ca=certs / "ca.crt", **options) as client:
            while not seen:
                with contextlib.suppress(snib.NetworkError):
                    client.ping()
        serving.result()
    assert set(seen) == {sent}


# ---- Four OpenSSLs -------------------------------------------------------------------------------


def with_ssl(port: int, certs: Path) -> None:
    context = ssl.create_default_context(cafile=certs / "ca.crt")
    with socket.create_connection(("localhost", port)) as plain:
        with context.wrap_socket(plain, server_hostname="localhost") as secure:
            secure.sendall(b"PING\r\n")
            assert secure.recv(100) == b"+PONG\r\n"


def with_cryptography(port: int, certs: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    key = ec.generate_private_key(ec.SECP256R1())
    signature = key.sign(b"x", ec.ECDSA(hashes.SHA256()))
    key.public_key().verify(signature, b"x", ec.ECDSA(hashes.SHA256()))
    secret = AESGCM.generate_key(256)
    assert AESGCM(secret).decrypt(b"0" * 12, AESGCM(secret).encrypt(b"0" * 12, b"text", None), None) == b"text"
    authority = x509.load_pem_x509_certificate((certs / "ca.crt").read_bytes())
    x509.load_pem_x509_certificate((certs / "server.crt").read_bytes()).verify_directly_issued_by(authority)


class Postgres:
    """Just enough of a PostgreSQL server to be refused over TLS by libpq's own OpenSSL."""

    def __init__(self, certs: Path) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certs / "server.crt", certs / "server.key")
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.over_tls = 0
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self) -> None:
        while True:
            plain, _ = self.socket.accept()
            with plain:
                if len(plain.recv(8)) < 8:
                    return
                plain.sendall(b"S")
                with self.context.wrap_socket(plain, server_side=True) as secure:
                    secure.recv(1000)
                    fields = b"SFATAL\0C28000\0Mnobody may come in\0\0"
                    secure.sendall(b"E" + (len(fields) + 4).to_bytes(4, "big") + fields)
                    self.over_tls += 1

    def end(self) -> None:
        socket.create_connection(("127.0.0.1", self.port)).close()
        self.thread.join()
        self.socket.close()


@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_the_module_has_its_own_openssl() -> None:
    """Neither does it ask for the system's, nor does it show the one that it brings to anybody else in the process."""
    if not shutil.which("readelf"):
        pytest.skip("needs readelf")
    told = [
        subprocess.run(["readelf", "--wide", what, snib._core.__file__], capture_output=True, text=True, check=True).stdout
        for what in ("--dynamic", "--dyn-syms")
    ]
    needed = [line.rpartition("[")[2] for line in told[0].splitlines() if "(NEEDED)" in line]
    assert needed and not [name for name in needed if name.startswith(("libssl", "libcrypto"))], needed
    symbols = [line.split() for line in told[1].splitlines() if line.split()[3:4] in (["FUNC"], ["OBJECT"])]
    assert [words[7] for words in symbols if words[6] != "UND"] == ["PyInit__core"]


def test_four_in_one_process(port: int, certs: Path) -> None:
    psycopg = pytest.importorskip("psycopg")
    pytest.importorskip("cryptography")
    postgres = Postgres(certs)

    def with_psycopg() -> None:
        with pytest.raises(psycopg.OperationalError, match="nobody may come in"):
            psycopg.connect(
                f"host=localhost hostaddr=127.0.0.1 port={postgres.port} user=u dbname=d connect_timeout=20 "
                f"sslmode=verify-full sslrootcert={certs}/ca.crt"
            )

    def with_snib() -> None:
        with connect(port, tls_ca=certs / "ca.crt") as client:
            with client.lock("four"):
                pass

    def in_turn(user: int) -> None:
        uses = [with_snib, lambda: with_ssl(port, certs), lambda: with_cryptography(port, certs), with_psycopg]
        for turn in range(ROUNDS):
            uses[(user + turn) % 4]()

    try:
        before = os.listdir("/proc/self/task")
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(in_turn, range(4)))
        assert postgres.over_tls == ROUNDS
        # A thread that was joined may still be in OpenSSL's own clean-up, with its lock, which a child would keep for ever.
        eventually(lambda: set(os.listdir("/proc/self/task")) <= set(before))
        # A forked child has them all too.
        child = os.fork()
        if child == 0:
            try:
                with_snib()
                with_ssl(port, certs)
                with_cryptography(port, certs)
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        postgres.end()


def test_end_of_a_process(port: int, certs: Path) -> None:
    """Holds over TLS are released at process end, whichever library initialised OpenSSL first."""
    program = (
        "import sys, ssl, snib; ssl.create_default_context();"
        f"client = snib.connect('rediss://localhost:{port}?{PATIENT}', tls_ca='{certs}/ca.crt');"
        "client.lock('end').acquire(); print('held')"
    )
    with connect(port, tls_ca=certs / "ca.crt") as client:
        for _ in range(3):
            done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
            assert (done.returncode, done.stdout, done.stderr) == (0, "held\n", "")
            lock = client.lock("end")
            assert lock.acquire(blocking=False), "it was given back"
            lock.release()

"""A private PostgreSQL and MariaDB, each in a temporary folder."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))

from ports import free_port  # noqa: E402

PATIENCE = 120.0


def find(name: str) -> Path:
    """The path of a program from Debian's packages, which are not all on PATH."""
    folders = [*Path("/usr/lib/postgresql").glob("*/bin"), Path("/usr/sbin"), Path("/usr/bin")]
    tools = Path(os.environ.get("SNIB_BUILD", "build")) / "tools"
    folders += tools.glob("postgresql/usr/lib/postgresql/*/bin")
    for folder in folders:
        if (folder / name).exists():
            return folder / name
    raise FileNotFoundError(f"{name} is not there; ./dev setup installs it")


class Database:
    """A server process, run by an account other than root, which both servers refuse."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="snib-db-"))
        self.port = free_port()
        self._account = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        if self._account:
            os.chown(self.folder, self._account.pw_uid, self._account.pw_gid)
        self._log = (self.folder / "log").open("w")

    def _options(self) -> dict[str, object]:
        options: dict[str, object] = {"stdout": self._log, "stderr": subprocess.STDOUT}
        options |= {"cwd": self.folder, "env": os.environ | {"HOME": str(self.folder), "LC_ALL": "C"}}
        if self._account:
            options |= {"user": self._account.pw_uid, "group": self._account.pw_gid}
            options["extra_groups"] = []
        return options

    def _run(self, *command: object) -> None:
        result = subprocess.run([str(word) for word in command], **self._options())  # type: ignore[call-overload]
        assert result.returncode == 0, self.log()

    def _start(self, *command: object) -> None:
        self._process = subprocess.Popen([str(word) for word in command], **self._options())  # type: ignore[call-overload]

    def log(self) -> str:
        return (self.folder / "log").read_text()[-3000:]

    def await_(self, works: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                works()
                return
            except Exception:
                assert self._process.poll() is None and time.monotonic() < end, self.log()
                time.sleep(0.05)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()
        shutil.rmtree(self.folder)


class Postgres(Database):
    def __init__(self) -> None:
        super().__init__()
        data = self.folder / "data"
        self._run(find("initdb"), "-D", data, "-U", "snib", "--auth=trust", "-E", "UTF8", "--no-sync")
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": self.folder,
            "fsync": "off",
            "jit": "off",
        }
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        self._start(find("postgres"), "-D", data, *words)
        self.url = f"postgresql://snib@127.0.0.1:{self.port}/postgres"
        self.jdbc = f"jdbc:postgresql://127.0.0.1:{self.port}/postgres?user=snib"

        import psycopg

        self.await_(lambda: psycopg.connect(self.url).close())


class MariaDB(Database):
    def __init__(self) -> None:
        super().__init__()
        data = self.folder / "data"
        data.mkdir(mode=0o777)
        data.chmod(0o777)
        self.socket = self.folder / "s"
        self._start(
            find("mariadbd"),
            "--no-defaults",
            f"--datadir={data}",
            f"--socket={self.socket}",
            f"--pid-file={self.folder / 'pid'}",
            "--skip-networking",
            "--skip-grant-tables",  # so that it needs no system tables
            "--innodb-flush-log-at-trx-commit=0",
        )

        import pymysql

        self.await_(lambda: pymysql.connect(unix_socket=str(self.socket), user="root").close())
        with pymysql.connect(unix_socket=str(self.socket), user="root") as connection:
            connection.cursor().execute("CREATE DATABASE snib")

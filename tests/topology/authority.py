"""Certificates made by the openssl command in the test's folder: valid ones, and every kind of invalid one."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path


def _openssl(*words: object) -> None:
    command = ["openssl", *map(str, words)]
    subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)


class Certificate:
    """A certificate and its key, as files."""

    def __init__(self, folder: Path, name: str) -> None:
        self.file = folder / f"{name}.crt"
        self.key = folder / f"{name}.key"


class Authority:
    """A certificate authority.  client_certificates: servers ask for one, "yes", "no" or "optional"."""

    def __init__(
        self, folder: Path, name: str = "ca", client_certificates: str = "optional"
    ) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True, parents=True)
        self.name = name
        self.client_certificates = client_certificates
        self.ca = Certificate(folder, name)
        self._made: dict[str, Certificate] = {}
        self._key(self.ca)
        _openssl(
            *("req", "-x509", "-new", "-key", self.ca.key, "-out", self.ca.file, "-days", 2),
            *("-subj", f"/CN=Snib test {name}", "-addext", "basicConstraints=critical,CA:TRUE"),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
        )

    @staticmethod
    def _key(certificate: Certificate) -> None:
        _openssl(
            *("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-out", certificate.key),
        )

    def certificate(
        self, name: str, *hosts: str, expired: bool = False, client: bool = False, subject: str = ""
    ) -> Certificate:
        """A certificate for these hosts (addresses or names; possibly none) by this authority.  Made once per name."""
        if name in self._made:
            return self._made[name]
        made = Certificate(self.folder, name)
        self._key(made)
        request = self.folder / f"{name}.csr"
        _openssl(
            "req", "-new", "-key", made.key, "-out", request, "-subj", f"/CN={subject or name}"
        )
        usage = "clientAuth" if client else "serverAuth,clientAuth"
        lines = ["basicConstraints=CA:FALSE", f"extendedKeyUsage={usage}"]
        if hosts:
            lines.append("subjectAltName=" + ",".join(map(_alternative, hosts)))
        extensions = self.folder / f"{name}.ext"
        extensions.write_text("\n".join(lines) + "\n")
        _openssl(
            *("x509", "-req", "-in", request, "-CA", self.ca.file, "-CAkey", self.ca.key),
            *("-CAcreateserial", "-out", made.file, "-extfile", extensions),
            # openssl 3.0 has no -not_after here, but it accepts a negative number of days.
            *("-days", -1 if expired else 2),
        )
        self._made[name] = made
        return made

    def self_signed(self, name: str, *hosts: str) -> Certificate:
        """A self-signed certificate."""
        made = Certificate(self.folder, name)
        self._key(made)
        _openssl(
            *("req", "-x509", "-new", "-key", made.key, "-out", made.file, "-days", 2),
            *(
                "-subj",
                f"/CN={name}",
                "-addext",
                "subjectAltName=" + ",".join(map(_alternative, hosts)),
            ),
        )
        return made

    def server(self, *hosts: str) -> Certificate:
        """A valid certificate for a server at these hosts."""
        return self.certificate("server-" + "-".join(hosts).replace(":", "_"), *hosts)

    def client(self, subject: str = "client") -> Certificate:
        return self.certificate(f"client-{subject}", client=True, subject=subject)

    def server_options(self, *hosts: str, certificate: Certificate | None = None) -> list[str]:
        """Lines for a server's configuration."""
        chosen = certificate or self.server(*dict.fromkeys([*hosts, "localhost"]))
        return [
            f"tls-cert-file {chosen.file}",
            f"tls-key-file {chosen.key}",
            f"tls-ca-cert-file {self.ca.file}",
            f"tls-auth-clients {self.client_certificates}",
        ]

    def client_context(self, certificate: Certificate | None = None) -> ssl.SSLContext:
        """A client context that trusts only this authority."""
        context = ssl.create_default_context(cafile=str(self.ca.file))
        chosen = certificate
        if chosen is None and self.client_certificates == "yes":
            chosen = self.client()
        if chosen is not None:
            context.load_cert_chain(chosen.file, chosen.key)
        return context


def _alternative(host: str) -> str:
    return f"IP:{host}" if ":" in host or host.replace(".", "").isdigit() else f"DNS:{host}"

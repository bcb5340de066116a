"""One certificate authority per cluster, and a certificate and kubeconfig for each who speaks to its API server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from e2e.machine import run

DAYS = "30"


class Certificates:
    """Files below `folder`. `server` is the API server's URL that the kubeconfigs name."""

    def __init__(self, folder: Path, server: str) -> None:
        self.folder = folder
        self.server = server

    @property
    def authority(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def authority_key(self) -> Path:
        return self.folder / "ca.key"

    @property
    def accounts_key(self) -> Path:
        """Signs the tokens of service accounts."""
        return self.folder / "accounts.key"

    @property
    def accounts_public(self) -> Path:
        return self.folder / "accounts.pub"

    def certificate(self, name: str) -> Path:
        return self.folder / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def kubeconfig(self, name: str) -> Path:
        return self.folder / f"{name}.kubeconfig"

    def create_authority(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        subject = ["-subj", "/CN=e2e", "-days", DAYS]
        run(["openssl", "req", "-x509", *_NEW_KEY, *subject, "-keyout", self.authority_key, "-out", self.authority])
        run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", self.accounts_key])
        run(["openssl", "ec", "-in", self.accounts_key, "-pubout", "-out", self.accounts_public])

    def issue(self, name: str, user: str, groups: Sequence[str] = (), alternatives: Sequence[str] = ()) -> None:
        """A certificate (CN is the user, each O a group) that serves clients and servers, and a kubeconfig with it."""
        subject = "".join(f"/O={group}" for group in groups) + f"/CN={user}"
        request = self.folder / f"{name}.csr"
        run(["openssl", "req", *_NEW_KEY, "-subj", subject, "-keyout", self.key(name), "-out", request])
        extensions = self.folder / f"{name}.ext"
        names = f"subjectAltName={','.join(alternatives)}\n" if alternatives else ""
        extensions.write_text(f"extendedKeyUsage=clientAuth,serverAuth\n{names}")
        authority: list[str | Path] = [
            "-CA",
            self.authority,
            "-CAkey",
            self.authority_key,
            "-CAcreateserial",
            "-days",
            DAYS,
        ]
        signed: list[str | Path] = ["-extfile", extensions, "-out", self.certificate(name)]
        run(["openssl", "x509", "-req", "-in", request, *authority, *signed])
        request.unlink()
        extensions.unlink()
        self.kubeconfig(name).write_text(yaml.safe_dump(self._kubeconfig(name)))
        self.kubeconfig(name).chmod(0o600)

    def _kubeconfig(self, name: str) -> dict[str, object]:
        cluster = {"server": self.server, "certificate-authority": str(self.authority)}
        user = {"client-certificate": str(self.certificate(name)), "client-key": str(self.key(name))}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "e2e", "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": name}}],
            "current-context": "e2e",
        }


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")

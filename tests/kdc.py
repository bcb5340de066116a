"""A key distribution center of Debian's MIT Kerberos (scripts/fetch-kerberos.sh) on the loopback, for one realm."""

from __future__ import annotations

import functools
import importlib.util
import os
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from ottla.local.ports import free_port

REALM = "OTTLA.TEST"
_LIMIT_S = 60.0


def _root() -> Path:
    cache = os.environ.get("OTTLA_CACHE", "")
    return (Path(cache) if cache else Path.home() / ".cache" / "ottla") / "kerberos"


@functools.cache
def why_kerberos_tests_cannot_run() -> str:
    """The reason, or "" when they can."""
    script = Path(__file__).resolve().parents[1] / "scripts" / "fetch-kerberos.sh"
    if importlib.util.find_spec("gssapi") is None:
        return "gssapi is missing: run scripts/fetch-kerberos.sh"
    is_there = subprocess.run([script, "--check"], check=False, capture_output=True).returncode == 0
    return "" if is_there else "a key distribution center is missing: run scripts/fetch-kerberos.sh"


class Kdc:
    """It runs from `start` to `stop`.

    Args:
        lifetime: of its tickets, such as "1d" or "30s".
    """

    def __init__(self, directory: Path, *, lifetime: str = "1d") -> None:
        directory.mkdir(exist_ok=True)
        self._directory = directory
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._root = _root()
        libraries = next(self._root.glob("usr/lib/*/libkdb5.so.10")).parent
        self.config = directory / "krb5.conf"
        self._profile = directory / "kdc.conf"
        self.config.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
            " dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n"
            f" ticket_lifetime = {lifetime}\n"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{self._port}\n }}\n"
        )
        self._profile.write_text(
            f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{self._port}\n kdc_tcp_listen = 127.0.0.1:{self._port}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {directory}/principal\n  key_stash_file = {directory}/stash\n"
            f"  max_life = {lifetime}\n }}\n"
            f"[dbmodules]\n db_module_dir = {libraries}/krb5/plugins/kdb\n"
        )
        self._environment = {
            **os.environ,
            **self.environment,
            "KRB5_KDC_PROFILE": str(self._profile),
            "LD_LIBRARY_PATH": str(libraries),
        }
        self._run("sbin/kdb5_util", "create", "-s", "-P", "master", "-r", REALM)

    @property
    def environment(self) -> Mapping[str, str]:
        """For who uses MIT's library."""
        return {"KRB5_CONFIG": str(self.config)}

    @property
    def java_options(self) -> list[str]:
        return [f"-Djava.security.krb5.conf={self.config}"]

    def keytab(self, principal: str) -> Path:
        """Makes a principal with a random key, and a file with it."""
        path = self._directory / f"{principal.replace('/', '-')}.keytab"
        self._run("sbin/kadmin.local", "-q", f"addprinc -randkey {principal}")
        self._run("sbin/kadmin.local", "-q", f"ktadd -norandkey -k {path} {principal}")
        return path

    def change_key(self, principal: str, keytab: Path) -> None:
        """Adds a new key to the keytab, from which tickets are made from now on."""
        self._run("sbin/kadmin.local", "-q", f"ktadd -k {keytab} {principal}")

    def ticket_cache(self, principal: str, keytab: Path, *arguments: str) -> Path:
        """Logs in, as `kinit` with these arguments does."""
        path = self._directory / f"{keytab.name}.cache"
        self._run("bin/kinit", "-k", "-t", str(keytab), "-c", str(path), *arguments, principal)
        return path

    def start(self) -> None:
        """Returns when it answers."""
        with (self._directory / "kdc.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._root / "usr/sbin/krb5kdc", "-n"], env=self._environment, stdout=log, stderr=log
            )
        deadline = time.monotonic() + _LIMIT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
                return
            except ConnectionRefusedError:
                assert self._process.poll() is None, (self._directory / "kdc.log").read_text()
                assert time.monotonic() < deadline, "the key distribution center does not answer"
                time.sleep(0.01)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(_LIMIT_S)
            self._process = None

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._root / "usr" / program), *arguments]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"

"""Credential plugins: programs that print a token or a client certificate, ``exec`` of a kubeconfig."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from frameworkcontroller.kubeconfig.reader import Kubeconfig, KubeconfigError, is_token, mapping, mappings, text, texts
from frameworkcontroller.kubeconfig.tls import Pem, Tls

_TIMEOUT_SEC = 60.0
_GROUP = "client.authentication.k8s.io"


class Credentials(NamedTuple):
    """The credentials that a plugin printed: a token, a certificate, or both."""

    token: str
    tls: Tls | None
    """The settings of the API server, with the certificate; None if it printed none."""
    expires: float
    """In seconds since the epoch; infinity if they do not expire."""


class Plugin:
    """The credential plugin of a user."""

    def __init__(self, config: Kubeconfig, tls: Tls, server: str, interactive: bool = False) -> None:
        """``tls``, ``server``: of the API server. ``interactive``: it may use the terminal. Raises KubeconfigError."""
        section = mapping(config.user["exec"], "exec")
        self._version = text(section, "apiVersion")
        if self._version not in [f"{_GROUP}/{version}" for version in ("v1", "v1beta1", "v1alpha1")]:
            raise KubeconfigError(f"exec: its apiVersion is none of {_GROUP}: {self._version!r}")
        mode = section.get("interactiveMode")
        self._interactive = interactive and mode != "Never"
        if mode == "Always" and not interactive:
            raise KubeconfigError("exec: it wants a terminal, and there is none")
        program = text(section, "command")
        if not program:
            raise KubeconfigError("exec: it names no command")
        self.name = f"credential plugin {program}"
        self._hint = " ".join(text(section, "installHint").split())
        self._command = [program, *texts(section, "args")]
        self._environ = {
            text(entry, "name"): text(entry, "value") for entry in mappings(section, "env") if entry.get("name")
        }
        spec: dict[str, Any] = {"interactive": self._interactive}
        if section.get("provideClusterInfo"):
            spec["cluster"] = _cluster_info(config.cluster, tls, server)
        info = {"apiVersion": self._version, "kind": "ExecCredential", "spec": spec}
        self._environ["KUBERNETES_EXEC_INFO"] = json.dumps(info, default=str)
        self._server_tls = tls

    def run(self) -> Credentials:
        """Run the program, at most a minute. Raises KubeconfigError, naming it."""
        try:
            # Its stderr is for people, and goes to the log.
            done = subprocess.run(  # noqa: S603 - the kubeconfig names the program to run
                self._command,
                env={**os.environ, **self._environ},
                stdin=None if self._interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                timeout=_TIMEOUT_SEC,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise KubeconfigError(f"{self.name}: it took too long") from None
        except FileNotFoundError:
            raise KubeconfigError(f"{self.name}: command not found. {self._hint}".rstrip(". ")) from None
        except (OSError, ValueError) as error:
            raise KubeconfigError(f"{self.name}: {getattr(error, 'strerror', None) or error}") from None
        if done.returncode:
            raise KubeconfigError(f"{self.name} failed with {done.returncode}")
        try:
            answer = json.loads(done.stdout.decode("utf-8"))
            status = answer["status"]
            if (answer["apiVersion"], answer["kind"]) != (self._version, "ExecCredential"):
                raise KubeconfigError(f"{self.name} printed no ExecCredential of {self._version}")
            token = status.get("token") or ""
            if token and not is_token(token):
                raise ValueError
            certificate, key = (
                (status.get(field) or "").encode() for field in ("clientCertificateData", "clientKeyData")
            )
            expires = _time(status.get("expirationTimestamp"))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise KubeconfigError(f"{self.name} printed no ExecCredential") from None
        tls = replace(self._server_tls, certificate=Pem(certificate), key=Pem(key)) if certificate and key else None
        if not token and tls is None:
            raise KubeconfigError(f"{self.name} gave neither a token nor a certificate with its key")
        return Credentials(token, tls, expires)


def _cluster_info(cluster: dict[str, Any], tls: Tls, server: str) -> dict[str, Any]:
    """The cluster, for plugins that ask for it."""
    keys = ("tls-server-name", "insecure-skip-tls-verify")
    info = {"server": server, **{key: cluster[key] for key in keys if cluster.get(key)}}
    if tls.ca is not None:
        info["certificate-authority-data"] = base64.b64encode(tls.ca).decode()
    for extension in mappings(cluster, "extensions"):
        if extension.get("name") == _GROUP + "/exec":
            info["config"] = extension.get("extension")
    return info


def _time(stamp: str | None) -> float:
    """Seconds since the epoch of an RFC 3339 time, infinity for None. Raises ValueError, TypeError, AttributeError."""
    if stamp is None:
        return float("inf")
    # Python 3.7 knows neither Z nor fractions of any length.
    time = datetime.fromisoformat(re.sub(r"\.\d+", "", stamp.upper().replace("Z", "+00:00")))
    if time.tzinfo is None:
        raise ValueError
    return time.timestamp()

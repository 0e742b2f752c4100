"""Credentials for the API server."""

from __future__ import annotations

import base64
import json
import os
import re
import ssl
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from frameworkcontroller.barrier.errors import CheckFailed, reason
from frameworkcontroller.kubeconfig.reader import Kubeconfig, KubeconfigError, is_token, mapping, mappings, text, texts
from frameworkcontroller.kubeconfig.tls import Pem, Tls, TlsError

_PLUGIN_TIMEOUT_SEC = 60.0
_EXEC_GROUP = "client.authentication.k8s.io"


class User:
    """The token, token file or password of a user, if any.

    The file is read for each request: the kubelet replaces a service account's token while the Pod runs.
    """

    def __init__(self, config: Kubeconfig) -> None:
        self._config = config

    def headers(self) -> list[tuple[str, str]]:
        """Headers of the next request. Raises CheckFailed."""
        try:
            authorization = self._config.authorization()
        except KubeconfigError as error:
            raise CheckFailed(str(error)) from error
        return [("Authorization", authorization)] if authorization else []

    def tls(self) -> ssl.SSLContext | None:
        """A context to use in place of the server's, called after ``headers``."""
        return None

    def on_unauthorized(self) -> None:
        """Called when the API server answers 401."""


class Plugin(User):
    """A program that prints credentials: ``exec`` of a kubeconfig."""

    def __init__(self, config: Kubeconfig, tls: Tls, url: str, clock: Callable[[], float] = time.time) -> None:
        """``tls``: settings to which the plugin's certificate is added. Raises KubeconfigError."""
        super().__init__(config)
        plugin = mapping(config.user["exec"], "exec")
        self._version = text(plugin, "apiVersion")
        if self._version not in [f"{_EXEC_GROUP}/{version}" for version in ("v1", "v1beta1", "v1alpha1")]:
            raise KubeconfigError(f"exec: its apiVersion is none of {_EXEC_GROUP}: {self._version!r}")
        if plugin.get("interactiveMode") == "Always":
            raise KubeconfigError("exec: it wants a terminal, and there is none")
        program = text(plugin, "command")
        if not program:
            raise KubeconfigError("exec: it names no command")
        self._command = [program, *texts(plugin, "args")]
        self._environ = {
            text(entry, "name"): text(entry, "value") for entry in mappings(plugin, "env") if entry.get("name")
        }
        spec: dict[str, Any] = {"interactive": False}
        if plugin.get("provideClusterInfo"):
            spec["cluster"] = _cluster_info(config, tls, url)
        info = {"apiVersion": self._version, "kind": "ExecCredential", "spec": spec}
        self._environ["KUBERNETES_EXEC_INFO"] = json.dumps(info, default=str)
        self._server_tls = tls
        self._clock = clock
        self._token = ""
        self._tls: ssl.SSLContext | None = None
        self._valid_until: float | None = None

    def headers(self) -> list[tuple[str, str]]:
        if self._valid_until is None or self._clock() >= self._valid_until:
            self._renew()
        return [("Authorization", "Bearer " + self._token)] if self._token else []

    def tls(self) -> ssl.SSLContext | None:
        return self._tls

    def on_unauthorized(self) -> None:
        self._valid_until = None

    def _renew(self) -> None:
        named = f"credential plugin {self._command[0]}"
        try:
            # Its stderr is for people, and goes to the container's log.
            done = subprocess.run(  # noqa: S603 - the kubeconfig names the program to run
                self._command,
                env={**os.environ, **self._environ},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                timeout=_PLUGIN_TIMEOUT_SEC,
                check=False,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            why = "it took too long" if isinstance(error, subprocess.TimeoutExpired) else reason(error)
            raise CheckFailed(f"{named}: {why}") from None
        if done.returncode:
            raise CheckFailed(f"{named} failed with {done.returncode}")
        try:
            answer = json.loads(done.stdout.decode("utf-8"))
            status = answer["status"]
            if (answer["apiVersion"], answer["kind"]) != (self._version, "ExecCredential"):
                raise CheckFailed(f"{named} printed no ExecCredential of {self._version}")
            token = status.get("token") or ""
            if token and not is_token(token):
                raise ValueError
            certificate, key = ((status.get(name) or "").encode() for name in _PLUGIN_PAIR)
            expires = _time(status.get("expirationTimestamp"))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise CheckFailed(f"{named} printed no ExecCredential") from None
        has_pair = bool(certificate and key)
        if not token and not has_pair:
            raise CheckFailed(f"{named} gave neither a token nor a certificate with its key")
        try:
            pair = replace(self._server_tls, certificate=Pem(certificate), key=Pem(key)).context() if has_pair else None
        except TlsError as error:
            raise CheckFailed(f"{named}: {error}") from None
        self._token, self._tls, self._valid_until = token, pair, expires


_PLUGIN_PAIR = ("clientCertificateData", "clientKeyData")


def _cluster_info(config: Kubeconfig, tls: Tls, url: str) -> dict[str, Any]:
    """The cluster, for plugins that ask for it."""
    keys = ("tls-server-name", "insecure-skip-tls-verify")
    info = {"server": url, **{key: config.cluster[key] for key in keys if config.cluster.get(key)}}
    if tls.ca is not None:
        info["certificate-authority-data"] = base64.b64encode(tls.ca).decode()
    for extension in mappings(config.cluster, "extensions"):
        if extension.get("name") == _EXEC_GROUP + "/exec":
            info["config"] = extension.get("extension")
    return info


def _time(stamp: str | None) -> float:
    """Seconds since the epoch of a time of RFC 3339; infinity without one. Raises ValueError, TypeError."""
    if stamp is None:
        return float("inf")
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d)(\.\d+)?([Zz]|[-+]\d\d:\d\d)", stamp)
    if found is None:
        raise ValueError
    offset = found.group(3).upper().replace("Z", "+00:00").replace(":", "")
    return datetime.strptime(found.group(1).upper() + offset, "%Y-%m-%dT%H:%M:%S%z").timestamp()

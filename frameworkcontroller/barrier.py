#!/usr/bin/env python3
"""frameworkbarrier: waits until every Task of its Framework has an IP address, and says which.

Run it as an init container of the Framework's Pods. When every Task that the spec asks for has a Pod with an IP, it
writes two files into the working directory and exits 0:

  framework.json   the Framework, with its task role statuses readable, however they are stored
  injector.sh      to be sourced by a shell; for each TaskRole, in upper case, it exports and echoes
                     FB_{ROLE}_IPS        the IPs of its Tasks, in order of index, with commas between
                     FB_{ROLE}_ADDRESSES  the same with :${FB_{ROLE}_PORT} after each, which the caller has set before

Exit codes, which are the completion codes of the Pod's Task:

    0   every Task has an IP
  201   they did not within the timeout: the Framework is to give back what it holds and try again later
  210   there is no such Framework, or a setting is wrong: no use to try again
    1   no API server is configured, or its credentials cannot be used; the working directory takes no files; or the
        Framework could not be read until the timeout

Environment:

  FC_FRAMEWORK_NAMESPACE, FC_FRAMEWORK_NAME    which Framework; every container of it is given both
  FC_FRAMEWORK_UID                             if given: no other Framework of that name will do
  FC_FRAMEWORK_ATTEMPT_INSTANCE_UID            if given: no other attempt of it will do
  BARRIER_CHECK_INTERVAL_SEC                   10, and not below 5
  BARRIER_CHECK_TIMEOUT_SEC                    600, from 60 to 1200
  KUBECONFIG, KUBE_APISERVER_ADDRESS           how to reach the API server; without them, the Pod's service account,
                                               which needs leave to `get` Frameworks

The barrier needs nothing but Python 3.7 or newer: copy this one file to where it is wanted. The file of the image
contains PyYAML; without it, kubeconfigs must be JSON.
"""

from __future__ import annotations

import base64
import http.client
import ipaddress
import json
import logging
import os
import random
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import zlib
from datetime import datetime
from pathlib import Path
from urllib.parse import quote, urlsplit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, NoReturn

EXIT_PASSED = 0
EXIT_UNKNOWN = 1
EXIT_TIMED_OUT = 201
EXIT_REFUSED = 210

DEFAULT_INTERVAL_SEC = 10
LEAST_INTERVAL_SEC = 5
DEFAULT_TIMEOUT_SEC = 600
TIMEOUT_SEC_BOUNDS = (60, 1200)

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"

_REQUEST_TIMEOUT_SEC = 30.0
_REPEAT_LOG_SEC = 60.0  # an unchanged state is logged again after this
_PLUGIN_TIMEOUT_SEC = 60.0
_MOST_OF_THE_TIME_ASKING = 0.1  # of a barrier's time, for the server's sake
_LONGEST_WISH_SEC = 60.0  # for which a server that is slow, or says Retry-After, is left alone
_MOST_BYTES = 64 << 20  # of an answer, and of what is unpacked from it: more than 10,000 Tasks can need
_MOST_VALUES = 2000000  # of what is unpacked: 10,000 Tasks have a third of that
_MOST_TASKS = 10000  # of a role
_LARGE_BYTES = 64 << 10  # from here on a Framework is read again only if it has changed
_MOST_EXPORTED_BYTES = 120 << 10  # Linux allows 128 KiB, the variable's name included

_FRAMEWORKS = "/apis/frameworkcontroller.microsoft.com/v1/namespaces/%s/frameworks/%s"
_EXEC_GROUP = "client.authentication.k8s.io"
_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json"

_log = logging.getLogger("frameworkbarrier")


class BarrierError(Exception):
    """Why the barrier was not passed. ``code`` is what to exit with."""

    code = EXIT_UNKNOWN


class SettingsError(BarrierError):
    """What the barrier was told to do cannot be done; waiting does not help."""

    code = EXIT_REFUSED


class NoConnection(BarrierError):
    """The settings lead to no API server, or to none that would answer."""


class FrameworkGone(BarrierError):
    """There is no such Framework, or another one of the same name."""

    code = EXIT_REFUSED


class AttemptOver(BarrierError):
    """The Framework goes on without this Pod: a later attempt of it runs.

    The controller has this Pod deleted and does not look at how it ended; should anybody, a retry is the harmless way.
    """

    code = EXIT_TIMED_OUT


class TimedOut(BarrierError):
    """Some Task still had no IP at the timeout."""

    code = EXIT_TIMED_OUT


class CheckFailed(BarrierError):
    """One look at the Framework failed; the next may not.

    ``retry_after``: for how many seconds the server asked to be left alone.
    """

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


# --- settings ---------------------------------------------------------------------------------------------------


class Settings:
    """What to wait for, and how long. Times are in seconds."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Raises SettingsError, naming the variable."""
        self.namespace = _name(environ, "FC_FRAMEWORK_NAMESPACE", r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
        self.name = _name(environ, "FC_FRAMEWORK_NAME", r"[a-z0-9]{1,63}")
        self.uid = environ.get("FC_FRAMEWORK_UID") or None
        self.attempt = _attempt(environ, "FC_FRAMEWORK_ATTEMPT_INSTANCE_UID")
        self.interval = _seconds(environ, "BARRIER_CHECK_INTERVAL_SEC", DEFAULT_INTERVAL_SEC, LEAST_INTERVAL_SEC, None)
        self.timeout = _seconds(environ, "BARRIER_CHECK_TIMEOUT_SEC", DEFAULT_TIMEOUT_SEC, *TIMEOUT_SEC_BOUNDS)


def _name(environ: Mapping[str, str], variable: str, pattern: str) -> str:
    value = environ.get(variable)
    if not value:
        raise SettingsError(f"${variable} is not set: it names the Framework to wait for")
    if re.fullmatch(pattern, value) is None:
        raise SettingsError(f"${variable} cannot be the name of one: {value!r}")
    return value


def _attempt(environ: Mapping[str, str], variable: str) -> tuple[int, str] | None:
    value = environ.get(variable)
    if not value:
        return None
    found = re.fullmatch(r"([0-9]{1,18})_(.+)", value)
    if found is None:
        raise SettingsError(f"${variable} must be {{id}}_{{uid}}: {value!r}")
    return int(found.group(1)), found.group(2)


def _seconds(environ: Mapping[str, str], variable: str, default: int, least: int, most: int | None) -> int:
    value = environ.get(variable)
    if not value:
        return default
    seconds = int(value) if re.fullmatch(r"[0-9]{1,9}", value.strip()) else -1
    if seconds < least or (most is not None and seconds > most):
        bounds = f"at least {least}" if most is None else f"from {least} to {most}"
        raise SettingsError(f"${variable} must be a whole number of seconds, {bounds}: {value!r}")
    return seconds


# --- the API server ---------------------------------------------------------------------------------------------


class Server:
    """An API server: where it is, how it proves itself to us, and how we do to it.

    It is always asked directly, never through a proxy: proxies in the environment of a container are meant for its way
    out of the cluster, and must not get to see the token.
    """

    def __init__(
        self,
        address: str,
        named: str,
        tls: ssl.SSLContext | None = None,
        tls_server_name: str | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """``tls``: how to trust it; ``credentials`` may have a context of their own.

        Raises NoConnection if the address is not one; ``named`` says whose it is.
        """
        wanted = f"{named} must be http[s]://host:port: {address!r}"
        try:
            url = urlsplit(address.strip())
            port = url.port
        except ValueError as error:
            raise NoConnection(f"{wanted} ({error})") from None
        if url.scheme not in ("http", "https") or not url.hostname or url.username is not None or url.query:
            raise NoConnection(wanted)
        self.address = address.strip()
        self._host = url.hostname
        self._port = port or (443 if url.scheme == "https" else 80)
        self._prefix = url.path.rstrip("/")
        self._tls = (tls or _tls_context(None, named)) if url.scheme == "https" else None
        self._tls_server_name = tls_server_name
        self._credentials = credentials or Credentials()

    def get(self, path: str, accept: str, timeout: float) -> tuple[int, Mapping[str, str], bytes]:
        """The status, headers (in lower case) and body of the answer to a GET, within ``timeout`` seconds.

        Raises CheckFailed.
        """
        deadline = time.monotonic() + timeout
        headers = [("Accept", accept), ("User-Agent", "frameworkbarrier"), ("Connection", "close")]
        headers += self._credentials.headers()
        tls = self._tls and (self._credentials.tls() or self._tls)
        connection = _Connection(self._host, self._port, timeout, tls, self._tls_server_name)
        try:
            connection.putrequest("GET", self._prefix + path, skip_accept_encoding=True)
            for name, value in headers:
                connection.putheader(name, value)
            connection.endheaders()
            response = connection.getresponse()
            if response.status == 401:
                self._credentials.refused()
            chunks = []
            size = 0
            while True:
                chunk = response.read(1 << 16)
                if not chunk:
                    break
                chunks.append(chunk)
                size += len(chunk)
                if size > _MOST_BYTES:
                    raise CheckFailed(f"{self.address}: its answer is larger than any Framework")
                if time.monotonic() > deadline:
                    raise CheckFailed(f"{self.address}: its answer was not complete after {timeout:.0f} s")
            return response.status, {key.lower(): value for key, value in response.getheaders()}, b"".join(chunks)
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise CheckFailed(f"{self.address}: {_reason(error)}") from error
        finally:
            connection.close()


class _Connection(http.client.HTTPConnection):
    """With TLS where the server has it, its certificate checked against a name that need not be that of the address."""

    def __init__(
        self, host: str, port: int, timeout: float, tls: ssl.SSLContext | None, tls_server_name: str | None
    ) -> None:
        super().__init__(host, port, timeout=timeout)
        self._tls = tls
        self._tls_server_name = tls_server_name or host

    def connect(self) -> None:
        super().connect()
        if self._tls is not None:
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._tls_server_name)


class Credentials:
    """What a request proves itself by. None here: anonymous."""

    def headers(self) -> list[tuple[str, str]]:
        """Asked for before each request. Raises CheckFailed."""
        return []

    def tls(self) -> ssl.SSLContext | None:
        """A context with a client certificate, if that of the server has none. Asked for after ``headers``."""
        return None

    def refused(self) -> None:
        """The API server answered 401."""


class _Token(Credentials):
    """A bearer token, read anew for each request: tokens of service accounts are replaced while a Pod runs."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read

    def headers(self) -> list[tuple[str, str]]:
        return [("Authorization", "Bearer " + self._read())]


class _Password(Credentials):
    def __init__(self, user: str, password: str) -> None:
        self._value = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    def headers(self) -> list[tuple[str, str]]:
        return [("Authorization", self._value)]


class _Impersonating(Credentials):
    """Credentials of a user who acts as another one."""

    def __init__(self, own: Credentials, headers: list[tuple[str, str]]) -> None:
        self._own = own
        self._headers = headers

    def headers(self) -> list[tuple[str, str]]:
        return self._own.headers() + self._headers

    def tls(self) -> ssl.SSLContext | None:
        return self._own.tls()

    def refused(self) -> None:
        self._own.refused()


def connect(environ: Mapping[str, str], service_account: str = SERVICE_ACCOUNT) -> Server:
    """The API server that the environment names: by a kubeconfig, by its bare address, or by the Pod's service account.

    With a kubeconfig and an address, the kubeconfig's credentials are used at that address. Raises NoConnection.
    """
    address = environ.get("KUBE_APISERVER_ADDRESS")
    kubeconfig = environ.get("KUBECONFIG")
    if not kubeconfig and environ.get("HOME"):
        usual = Path(environ["HOME"]) / ".kube" / "config"
        kubeconfig = str(usual) if usual.is_file() else None
    if kubeconfig:
        return _by_kubeconfig(kubeconfig, address)
    if address:
        return Server(address, "$KUBE_APISERVER_ADDRESS")
    return _by_service_account(environ, Path(service_account))


def _by_service_account(environ: Mapping[str, str], directory: Path) -> Server:
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise NoConnection(
            "no API server is known: neither $KUBE_APISERVER_ADDRESS nor $KUBECONFIG is set, "
            "and without $KUBERNETES_SERVICE_HOST and $KUBERNETES_SERVICE_PORT this is not a Pod"
        )
    token_file, ca_file = directory / "token", directory / "ca.crt"
    if not token_file.exists():
        raise NoConnection(f"{token_file} is not there: the Pod needs its service account's token mounted")
    tls = _tls_context(ca_file, str(ca_file))
    bracketed = f"[{host}]" if ":" in host else host
    return Server(f"https://{bracketed}:{port}", "$KUBERNETES_SERVICE_HOST", tls, None, _Token(_TokenFile(token_file)))


class _TokenFile:
    """A token that somebody keeps fresh in a file."""

    def __init__(self, path: Path, fallback: str = "") -> None:
        self._path = path
        self._fallback = fallback

    def __call__(self) -> str:
        try:
            token = self._path.read_bytes()
        except OSError as error:
            if self._fallback:
                return self._fallback
            raise CheckFailed(f"token file {self._path}: {_reason(error)}") from error
        try:
            return _sendable(token.decode("ascii").strip())
        except ValueError:
            raise CheckFailed(f"token file {self._path} holds no token") from None


def _sendable(token: str) -> str:
    # Else it is the HTTP client that finds out, and quotes the token in its error. Raises ValueError.
    if re.fullmatch(r"[!-~]+", token) is None:
        raise ValueError
    return token


def _tls_context(ca_file: Path | None, named: str, ca: str | None = None, verify: bool = True) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=str(ca_file) if ca_file else None, cadata=ca)
    except (OSError, ValueError) as error:
        raise NoConnection(f"{named}: the certificate authority cannot be used: {_reason(error)}") from error
    # On by default since Python 3.13. Many clusters' own authorities lack what it asks for, and no other client asks.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _reason(error: BaseException) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return str(text) or type(error).__name__


# --- kubeconfig -------------------------------------------------------------------------------------------------


def _by_kubeconfig(path: str, address: str | None) -> Server:
    try:
        return _Kubeconfig(path).server(address)
    except _Unusable as error:
        raise NoConnection(f"kubeconfig {path}: {error}") from error


class _Unusable(Exception):
    """What is wrong with a kubeconfig."""


class _Kubeconfig:
    """The current context of a kubeconfig file. Raises _Unusable."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        if not self._path.exists() and os.pathsep in path:
            raise _Unusable("several files are not supported; merge them with `kubectl config view --raw --flatten`")
        try:
            content = self._path.read_bytes()
        except OSError as error:
            raise _Unusable(_reason(error)) from error
        self._config = _mapping(_parse(content), "it")
        current = self._config.get("current-context")
        if not current:
            raise _Unusable("it has no current-context")
        context = self._entry("context", current)
        self._cluster = self._entry("cluster", context.get("cluster"))
        # None: anonymous.
        self._user = self._entry("user", context["user"]) if context.get("user") else {}

    def _entry(self, kind: str, name: Any) -> dict[str, Any]:
        entries = self._config.get(kind + "s")
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and entry.get("name") == name:
                return _mapping(entry.get(kind), f"{kind} {name}")
        raise _Unusable(f"it has no {kind} {name}")

    def server(self, address: str | None) -> Server:
        """The API server; at ``address`` instead of where it says, if given."""
        if self._cluster.get("proxy-url"):
            raise _Unusable("proxy-url is not supported")
        if self._user.get("auth-provider"):
            raise _Unusable("auth-provider is not supported, nor by kubectl since 1.26; use exec")
        url = address or _text(self._cluster, "server")
        if not url:
            raise _Unusable("its cluster names no server")
        named = "$KUBE_APISERVER_ADDRESS" if address else f"kubeconfig {self._path}: server"
        tls_server_name = _text(self._cluster, "tls-server-name") or None
        return Server(url, named, self._tls(), tls_server_name, self._credentials(url))

    def _credentials(self, url: str) -> Credentials:
        own = Credentials()
        token, file, user = (_text(self._user, key) for key in ("token", "tokenFile", "username"))
        if user and (token or file):
            raise _Unusable("its user has both a token and a username")
        if user:
            own = _Password(user, _text(self._user, "password"))
        elif token or file:
            own = _Token(self._token(token, file))
        elif self._user.get("exec"):
            plugin = _mapping(self._user["exec"], "exec")
            own = _Plugin(plugin, self._path.parent, self._cluster_info(plugin, url), self._context)
        impersonation = self._impersonation()
        return _Impersonating(own, impersonation) if impersonation else own

    def _token(self, token: str, file: str) -> Callable[[], str]:
        if token:
            try:
                token = _sendable(token)
            except ValueError:
                raise _Unusable("its token holds characters that no token has") from None
        return _TokenFile(self._path.parent / file, token) if file else lambda: token

    def _impersonation(self) -> list[tuple[str, str]]:
        """Headers; the values are names, not secrets."""
        headers = [("Impersonate-User", _text(self._user, "as")), ("Impersonate-Uid", _text(self._user, "as-uid"))]
        headers += [("Impersonate-Group", group) for group in _texts(self._user, "as-groups")]
        extra = _mapping(self._user.get("as-user-extra") or {}, "as-user-extra")
        for key in extra:
            headers += [("Impersonate-Extra-" + quote(str(key), safe=""), value) for value in _texts(extra, key)]
        headers = [(name, value) for name, value in headers if value]
        if headers and headers[0][0] != "Impersonate-User":
            raise _Unusable("it impersonates groups, a UID or extra values, and no user")
        return headers

    def _cluster_info(self, plugin: dict[str, Any], url: str) -> dict[str, Any] | None:
        """What a plugin is told of the cluster, if it asks for that."""
        if not plugin.get("provideClusterInfo"):
            return None
        keys = ("tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data")
        info = {"server": url, **{key: self._cluster[key] for key in keys if self._cluster.get(key)}}
        ca_file = self._file(self._cluster, "certificate-authority")
        if ca_file is not None and "certificate-authority-data" not in info:
            try:
                info["certificate-authority-data"] = base64.b64encode(ca_file.read_bytes()).decode()
            except OSError as error:
                raise _Unusable(f"certificate-authority: {_reason(error)}") from error
        for extension in self._cluster.get("extensions") or ():
            if isinstance(extension, dict) and extension.get("name") == _EXEC_GROUP + "/exec":
                info["config"] = extension.get("extension")
        return info

    def _context(self) -> ssl.SSLContext:
        """How to trust the server; without a client certificate."""
        ca = self._data(self._cluster, "certificate-authority-data")
        ca_file = None if ca else self._file(self._cluster, "certificate-authority")
        verify = self._cluster.get("insecure-skip-tls-verify")
        if verify not in (None, True, False):
            raise _Unusable("insecure-skip-tls-verify must be true or false")
        return _tls_context(ca_file, f"kubeconfig {self._path}", ca.decode("latin-1") if ca else None, not verify)

    def _tls(self) -> ssl.SSLContext:
        context = self._context()
        files = [self._file(self._user, "client-certificate"), self._file(self._user, "client-key")]
        contents = [self._data(self._user, "client-certificate-data"), self._data(self._user, "client-key-data")]
        try:
            _load_certificate(context, files, contents)
        except OSError as error:
            raise _Unusable(f"its client certificate cannot be used: {_reason(error)}") from error
        return context

    def _file(self, section: dict[str, Any], key: str) -> Path | None:
        name = _text(section, key)
        return self._path.parent / name if name else None

    @staticmethod
    def _data(section: dict[str, Any], key: str) -> bytes:
        try:
            return base64.b64decode("".join(_text(section, key).split()), validate=True)
        except ValueError as error:
            raise _Unusable(f"{key} is not base64") from error


def _load_certificate(context: ssl.SSLContext, files: Sequence[Path | None], contents: Sequence[bytes]) -> None:
    """Load a client certificate and its key: ``contents``, or else ``files``. Raises OSError."""
    if any(contents):
        # The ssl module takes them as files only.
        with tempfile.TemporaryDirectory() as directory:
            written = [Path(directory) / name for name in ("certificate", "key")]
            for file, content in zip(written, contents):
                file.write_bytes(content)
            used = [file if content else given for file, content, given in zip(written, contents, files)]
            _load_certificate(context, used, ())
    elif files[0] is not None:
        # Without a password, OpenSSL asks the terminal for that of an encrypted key.
        context.load_cert_chain(str(files[0]), str(files[1]) if files[1] else None, password="")


def _mapping(value: Any, named: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Unusable(f"{named} is not a mapping")
    return value


def _text(section: dict[str, Any], key: str) -> str:
    value = section.get(key)
    if value is not None and not isinstance(value, str):
        raise _Unusable(f"{key} must be text")
    return value or ""


def _texts(section: dict[str, Any], key: str) -> list[str]:
    values = section.get(key) or []
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise _Unusable(f"{key} must be a list of text")
    return values


def _parse(content: bytes) -> Any:
    """The content of a kubeconfig, JSON or YAML. Raises _Unusable."""
    try:
        return json.loads(content.decode("utf-8-sig"))
    except ValueError:
        pass
    except RecursionError:
        raise _Unusable("it is nested too deeply") from None
    try:
        import yaml
    except ImportError:
        raise _Unusable(
            "it is not JSON, and there is no PyYAML here to read YAML; "
            "make JSON of it: kubectl config view --raw --flatten --minify -o json"
        ) from None
    try:
        # Of several documents, the first: the others are not looked at, nor by kubectl.
        loader = _loader(yaml)(content)
        return loader.get_data() if loader.check_data() else None
    except yaml.YAMLError as error:
        # Not the error's own text: it quotes the lines around, and there may be a token in them.
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark is not None else ""
        raise _Unusable(f"{line}it is not YAML: {getattr(error, 'problem', None) or type(error).__name__}") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise _Unusable(f"it is not YAML: {type(error).__name__}") from None
    except RecursionError:
        raise _Unusable("it is nested too deeply, or contains itself") from None


def _loader(yaml: Any) -> Any:
    """A reader of YAML. Numbers and times are text, since a kubeconfig has neither; unknown tags are ignored."""

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        def scan_to_next_token(self) -> None:
            # PyYAML takes a tab between tokens for an error, YAML does not.
            super().scan_to_next_token()
            while self.peek() == "\t" and (self.flow_level or not self.allow_simple_key):
                self.forward()
                super().scan_to_next_token()

        def untagged(self, node: Any) -> Any:
            if isinstance(node, yaml.MappingNode):
                return self.construct_mapping(node, deep=True)
            if isinstance(node, yaml.SequenceNode):
                return self.construct_sequence(node, deep=True)
            return self.construct_scalar(node)

    known = [f"tag:yaml.org,2002:{name}" for name in ("bool", "merge", "null")]
    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag in known]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    Loader.add_constructor(None, Loader.untagged)
    return Loader


class _Plugin(Credentials):
    """A program that prints credentials: ``exec`` of a kubeconfig."""

    def __init__(
        self,
        plugin: dict[str, Any],
        directory: Path,
        cluster: dict[str, Any] | None,
        context: Callable[[], ssl.SSLContext],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``directory``: of the kubeconfig. ``context``: makes one without a client certificate. Raises _Unusable."""
        self._version = _text(plugin, "apiVersion")
        if self._version not in [f"{_EXEC_GROUP}/{version}" for version in ("v1", "v1beta1", "v1alpha1")]:
            raise _Unusable(f"exec: its apiVersion is none of {_EXEC_GROUP}: {self._version!r}")
        if plugin.get("interactiveMode") == "Always":
            raise _Unusable("exec: it wants a terminal, and there is none")
        program = _text(plugin, "command")
        if not program:
            raise _Unusable("exec: it names no command")
        # As with shells: without a slash it is on the PATH.
        self._command = [str(directory / program) if "/" in program else program, *_texts(plugin, "args")]
        self._environ = {
            _text(entry, "name"): _text(entry, "value") for entry in _mappings(plugin, "env") if entry.get("name")
        }
        spec = {"interactive": False, **({} if cluster is None else {"cluster": cluster})}
        info = {"apiVersion": self._version, "kind": "ExecCredential", "spec": spec}
        self._environ["KUBERNETES_EXEC_INFO"] = json.dumps(info, default=str)
        self._make_context = context
        self._clock = clock
        self._token = ""
        self._own_tls: ssl.SSLContext | None = None
        self._valid_until: float | None = None

    def headers(self) -> list[tuple[str, str]]:
        if self._valid_until is None or self._clock() >= self._valid_until:
            self._renew()
        return [("Authorization", "Bearer " + self._token)] if self._token else []

    def tls(self) -> ssl.SSLContext | None:
        return self._own_tls

    def refused(self) -> None:
        self._valid_until = None

    def _renew(self) -> None:
        named = f"credential plugin {self._command[0]}"
        try:
            # What it says on stderr is for people.
            done = subprocess.run(  # noqa: S603 - the program that the kubeconfig names is what has to be run
                self._command,
                env={**os.environ, **self._environ},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                timeout=_PLUGIN_TIMEOUT_SEC,
                check=False,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            why = "it took too long" if isinstance(error, subprocess.TimeoutExpired) else _reason(error)
            raise CheckFailed(f"{named}: {why}") from None
        if done.returncode:
            raise CheckFailed(f"{named} failed with {done.returncode}")
        try:
            answer = json.loads(done.stdout.decode("utf-8"))
            status = answer["status"]
            if (answer["apiVersion"], answer["kind"]) != (self._version, "ExecCredential"):
                raise CheckFailed(f"{named} printed no ExecCredential of {self._version}")
            token = _sendable(status["token"]) if status.get("token") else ""
            pair = [(status.get(key) or "").encode() for key in ("clientCertificateData", "clientKeyData")]
            expires = _time(status.get("expirationTimestamp"))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise CheckFailed(f"{named} printed no ExecCredential") from None
        if not token and not all(pair):
            raise CheckFailed(f"{named} gave neither a token nor a certificate with its key")
        context = None
        if all(pair):
            context = self._make_context()
            try:
                _load_certificate(context, (None, None), pair)
            except OSError as error:
                raise CheckFailed(f"{named}: its certificate cannot be used: {_reason(error)}") from None
        self._token, self._own_tls, self._valid_until = token, context, expires


def _mappings(section: dict[str, Any], key: str) -> list[dict[str, Any]]:
    values = section.get(key) or []
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise _Unusable(f"{key} must be a list of mappings")
    return values


def _time(text: str | None) -> float:
    """Seconds since the epoch, of a time of RFC 3339; without one, for ever. Raises ValueError, TypeError."""
    if text is None:
        return float("inf")
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d)(\.\d+)?([Zz]|[-+]\d\d:\d\d)", text)
    if found is None:
        raise ValueError
    offset = found.group(3).upper().replace("Z", "+00:00").replace(":", "")
    return datetime.strptime(found.group(1).upper() + offset, "%Y-%m-%dT%H:%M:%S%z").timestamp()


# --- the Framework ----------------------------------------------------------------------------------------------


class Reader:
    """Reads one Framework from an API server."""

    def __init__(self, server: Server, settings: Settings) -> None:
        self._server = server
        self._settings = settings
        self._path = _FRAMEWORKS % (settings.namespace, settings.name)
        self._large_version: str | None = None

    def read(self, timeout: float, cached: bool) -> dict[str, Any] | None:
        """The Framework, its task role statuses readable; None if it is the same as was read the last time.

        ``cached``: from the API server's memory, which costs it little and may be a moment old.
        Raises FrameworkGone, CheckFailed.
        """
        path = self._path + "?resourceVersion=0" if cached else self._path
        if cached and self._large_version is not None:
            # A large one costs the API server many milliseconds to write out; so first find out if there is any news.
            metadata = _decoded(self._get(path, _METADATA_ONLY, timeout))
            if _version(metadata) == self._large_version:
                return None
        body = self._get(path, "application/json", timeout)
        framework = _decoded(body)
        self._large_version = _version(framework) if len(body) >= _LARGE_BYTES else None
        _unpack(framework)
        return framework

    def _get(self, path: str, accept: str, timeout: float) -> bytes:
        code, headers, body = self._server.get(path, accept, timeout)
        if code == 200:
            return body
        try:
            status = json.loads(body.decode("utf-8"))
            message = str(status["message"])
        except (ValueError, KeyError, TypeError):
            status, message = {}, body[:300].decode("utf-8", "replace").strip()
        details = status.get("details")
        if code == 404 and isinstance(details, dict) and details.get("name") == self._settings.name:
            raise FrameworkGone(f"there is no Framework {self._settings.namespace}/{self._settings.name}")
        if code == 404:
            message += " (does it know the kind Framework?)"
        elif code == 403:
            message += " (whoever runs this needs leave to `get` Frameworks)"
        after = headers.get("retry-after", "")
        raise CheckFailed(
            f"{self._server.address}: {code}: {' '.join(message.split())[:500]}",
            float(after) if re.fullmatch(r"[0-9]{1,4}", after) else 0.0,
        )


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        framework = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise CheckFailed(f"the answer is not JSON: {error}") from error
    if not isinstance(framework, dict) or not isinstance(framework.get("metadata"), dict):
        raise CheckFailed("the answer is not a Framework")
    return framework


def _version(framework: dict[str, Any]) -> str | None:
    version = framework["metadata"].get("resourceVersion")
    return version if isinstance(version, str) else None


def _unpack(framework: dict[str, Any]) -> None:
    """Put the task role statuses where readers look first, if they are stored compressed."""
    status = framework.get("status")
    attempt = status.get("attemptStatus") if isinstance(status, dict) else None
    if not isinstance(attempt, dict):
        return
    compressed = attempt.pop("taskRoleStatusesCompressed", None)
    if attempt.get("taskRoleStatuses") is not None or not compressed:
        return
    try:
        packed = base64.b64decode(compressed, validate=True)
        inflater = zlib.decompressobj(16 + zlib.MAX_WBITS)
        roles = inflater.decompress(packed, _MOST_BYTES)
        if not inflater.eof:
            problem = "is larger than any status" if len(roles) == _MOST_BYTES else "is cut short"
            raise CheckFailed(f"taskRoleStatusesCompressed {problem}")
        if _holds_too_much(roles):
            raise CheckFailed("taskRoleStatusesCompressed has more values than any status")
        attempt["taskRoleStatuses"] = json.loads(roles.decode("utf-8"))
    except (ValueError, TypeError, zlib.error, RecursionError) as error:
        raise CheckFailed(f"taskRoleStatusesCompressed cannot be read: {error}") from error


def _holds_too_much(raw: bytes) -> bool:
    """Whether the JSON text has more values than any status, each of which takes much more memory than text."""
    if _marks(raw) <= _MOST_VALUES:
        return False
    # Most of what looks like JSON may be within texts: what containers said. More texts than values are no status.
    texts = (raw.count(b'"') - raw.count(b'\\"')) // 2
    return texts > _MOST_VALUES or _marks(re.sub(rb'"(?:[^"\\]|\\.)*"', b"", raw, flags=re.DOTALL)) > _MOST_VALUES


def _marks(raw: bytes) -> int:
    return sum(raw.count(mark) for mark in (b",", b":", b"[", b"{"))


def addresses(framework: dict[str, Any]) -> dict[str, list[str | None]]:
    """The IPs of the Tasks that the spec asks for, by role and in order of index; None where there is none yet.

    Tasks that are to be deleted do not count: one of the same index takes their place, or the spec has no use for it.
    Raises CheckFailed if the Framework is not one, or holds what no shell should be given.
    """
    try:
        status = framework.get("status") or {}
        statuses: dict[str, dict[int, Any]] = {}
        for role in (status.get("attemptStatus") or {}).get("taskRoleStatuses") or ():
            statuses[role["name"]] = {
                task["index"]: task["attemptStatus"].get("podIP")
                for task in role.get("taskStatuses") or ()
                if not task.get("deletionPending")
            }
        wanted: dict[str, list[str | None]] = {}
        for role in (framework.get("spec") or {}).get("taskRoles") or ():
            name, number = role["name"], role.get("taskNumber")
            if re.fullmatch(r"[a-z0-9]{1,63}", name) is None:
                raise ValueError(f"{name!r} is no name of a TaskRole")
            found = statuses.get(name, {})
            number = 1 if number is None else number
            if number > _MOST_TASKS:
                raise ValueError(f"{number!r} is no taskNumber")
            wanted[name] = [_checked(found.get(index)) for index in range(number)]
        return wanted
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckFailed(f"the Framework is not as it should be: {type(error).__name__}: {error}") from error


def _checked(ip: Any) -> str | None:
    if not isinstance(ip, (str, type(None))):
        raise TypeError(f"{ip!r} is no IP")
    return str(ipaddress.ip_address(ip)) if ip else None


def check_identity(framework: dict[str, Any], settings: Settings) -> None:
    """Raises FrameworkGone or AttemptOver if the Framework is not, or no longer, the one that this Pod belongs to.

    An *earlier* attempt than this Pod's is the answer of a cache that lags behind: CheckFailed, ask again.
    """
    uid = framework["metadata"].get("uid")
    if settings.uid is not None and uid != settings.uid:
        raise FrameworkGone(
            f"the Framework {settings.namespace}/{settings.name} of this Pod is gone: "
            f"the one of that name has UID {uid}, not {settings.uid}"
        )
    if settings.attempt is None:
        return
    wanted_id, wanted_uid = settings.attempt
    status = framework.get("status")
    attempt = status.get("attemptStatus") if isinstance(status, dict) else None
    attempt = attempt if isinstance(attempt, dict) else {}
    current_id, current_uid = attempt.get("id"), attempt.get("configMapUID")
    if not isinstance(current_id, int) or current_id < wanted_id:
        raise CheckFailed(f"the Framework does not show attempt {wanted_id} yet")
    if current_id > wanted_id or (current_uid is not None and current_uid != wanted_uid):
        raise AttemptOver(
            f"attempt {wanted_id}_{wanted_uid}, which this Pod belongs to, is over: "
            f"the Framework is at {current_id}_{current_uid}"
        )


# --- what is written --------------------------------------------------------------------------------------------


def injector(ips: Mapping[str, Sequence[str]]) -> str:
    """A script for dash, bash and their like that exports the addresses of each role, with the ports set by then.

    It echoes each variable, so that the container's log has them; the lines are the original's.
    """
    lines = [
        "#!/bin/sh",
        "# Made by frameworkbarrier, to be sourced. Set FB_{ROLE}_PORT before, for each role whose ADDRESSES you need;",
        "# source it again after setting other ports.",
        "",
        "echo ./injector.sh: Start to inject environment variables",
        "",
    ]
    for role, of_role in ips.items():
        lines += _export(f"FB_{role.upper()}_IPS", ",".join(of_role))
    lines.append("")
    for role, of_role in ips.items():
        prefix = "FB_" + role.upper()
        # Brackets as in URLs, or nobody could tell an IPv6 address from its port.
        hosts = [f"[{ip}]" if ":" in ip else ip for ip in of_role]
        lines += _export(prefix + "_ADDRESSES", ",".join(f"{host}:${{{prefix}_PORT-}}" for host in hosts))
    lines += ["", "echo ./injector.sh: Succeeded to inject environment variables"]
    return "\n".join(lines) + "\n"


def _export(variable: str, value: str) -> list[str]:
    # The value is addresses and the name of a variable. What that one holds, the shell does not read as its language.
    echo = f"printf '%s\\n' \"{variable}=${{{variable}}}\""
    if len(value) < _MOST_EXPORTED_BYTES:
        return [f'export {variable}="{value}"', echo]
    # Linux starts no program with a variable of 128 KiB or more in its environment, whichever program it is.
    return [
        f"unset {variable}",
        f'{variable}="{value}"',
        f'if [ "${{#{variable}}}" -lt {_MOST_EXPORTED_BYTES} ]; then',
        f"    export {variable}",
        f"    {echo}",
        "else",
        f"    echo 'injector.sh: {variable} is set for this shell only: too long to be exported' >&2",
        "fi",
    ]


def write_files(directory: Path, framework: dict[str, Any], ips: Mapping[str, Sequence[str]]) -> None:
    """Write framework.json and injector.sh, each at once, the script last. Raises BarrierError."""
    try:
        content = json.dumps(framework, separators=(",", ":")) + "\n"
        _replace(directory / "framework.json", content, 0o644)
        _replace(directory / "injector.sh", injector(ips), 0o755)
    except OSError as error:
        raise BarrierError(f"cannot write to {directory.absolute()}: {_reason(error)}") from error


def check_writable(directory: Path) -> None:
    """Raises BarrierError if no file can be made there: better said now than after minutes of waiting."""
    probe = directory / f".frameworkbarrier.{os.getpid()}"
    try:
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise BarrierError(f"cannot write to {directory.absolute()}: {_reason(error)}") from error


def _replace(path: Path, content: str, mode: int) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content.encode("utf-8"))
        # Whoever the other containers run as, they are to read it, whatever the umask here.
        temporary.chmod(mode)
        temporary.replace(path)
    except BaseException:
        if temporary.exists():
            temporary.unlink()
        raise


# --- waiting ----------------------------------------------------------------------------------------------------


class Barrier:
    """Looks at the Framework again and again until every Task has an IP."""

    def __init__(
        self,
        reader: Reader,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        rng: random.Random | None = None,
    ) -> None:
        self._reader = reader
        self._settings = settings
        self._clock = clock
        self._sleep = sleep
        self._rng = rng or random.Random()
        self._said = ""
        self._said_at = float("-inf")
        self._waiting = ""

    def wait(self) -> tuple[dict[str, Any], dict[str, list[str]]]:
        """The Framework and the IPs of its Tasks, once there are all. Raises BarrierError if there will not be."""
        deadline = self._clock() + self._settings.timeout
        while True:
            began = self._clock()
            failed: CheckFailed | None = None
            try:
                passed = self._look(max(1.0, min(_REQUEST_TIMEOUT_SEC, deadline - began)))
                if passed is not None:
                    return passed
                self._say(self._waiting)
            except CheckFailed as error:
                failed = error
                self._say(f"the Framework could not be read, will try again: {error}")
            now = self._clock()
            if now >= deadline:
                if failed is not None:
                    raise BarrierError(f"timed out after {self._settings.timeout} s, at last because: {failed}")
                raise TimedOut(f"timed out after {self._settings.timeout} s: {self._waiting}")
            self._sleep(min(self._pause(now - began, failed), deadline - now))

    def _look(self, timeout: float) -> tuple[dict[str, Any], dict[str, list[str]]] | None:
        try:
            framework = self._reader.read(timeout, cached=True)
            if framework is None or self._complete(framework) is None:
                return None
        except (FrameworkGone, AttemptOver):
            # A cache may not have heard of it yet. What ends the waiting is decided on what is true now.
            pass
        framework = self._reader.read(timeout, cached=False)
        ips = self._complete(framework) if framework is not None else None
        return (framework, ips) if framework is not None and ips is not None else None

    def _complete(self, framework: dict[str, Any]) -> dict[str, list[str]] | None:
        check_identity(framework, self._settings)
        by_role = addresses(framework)
        missing = {role: [index for index, ip in enumerate(ips) if ip is None] for role, ips in by_role.items()}
        total, lacking = sum(map(len, by_role.values())), sum(map(len, missing.values()))
        if lacking:
            where = ", ".join(f"{role} {_ranges(indexes)}" for role, indexes in missing.items() if indexes)
            self._waiting = f"{total - lacking} of {total} Tasks have an IP; still without: {where}"
            return None
        return {role: [ip for ip in ips if ip is not None] for role, ips in by_role.items()}

    def _pause(self, asking: float, failed: CheckFailed | None) -> float:
        # The Pods of a Framework start together; they are not to ask together too.
        pause = self._settings.interval * self._rng.uniform(0.8, 1.2)
        # A server that is slow to answer has enough to do without thousands of barriers.
        wish = asking / _MOST_OF_THE_TIME_ASKING
        if failed is not None:
            wish = max(wish, failed.retry_after * self._rng.uniform(1.0, 1.2))
        return max(pause, min(wish, _LONGEST_WISH_SEC))

    def _say(self, text: str) -> None:
        now = self._clock()
        if text != self._said or now - self._said_at >= _REPEAT_LOG_SEC:
            _log.info("%s", text)
            self._said, self._said_at = text, now


def _ranges(indexes: Sequence[int], most: int = 5) -> str:
    """Indexes as people write them: 0-3, 7."""
    ranges: list[list[int]] = []
    for index in indexes:
        if ranges and index == ranges[-1][1] + 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    said = ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges[:most])
    return said + ", ..." if len(ranges) > most else said


def run(environ: Mapping[str, str], directory: Path) -> int:
    """Wait as the environment says, and write the files into ``directory``. Returns the exit code; raises nothing."""
    try:
        settings = Settings(environ)
        server = connect(environ)
        check_writable(directory)
        _log.info(
            "waiting up to %d s for the Tasks of Framework %s/%s, looking at %s every %d s",
            settings.timeout,
            settings.namespace,
            settings.name,
            server.address,
            settings.interval,
        )
        framework, ips = Barrier(Reader(server, settings), settings).wait()
        write_files(directory, framework, ips)
        _log.info("passed: all %d Tasks have an IP", sum(map(len, ips.values())))
        return EXIT_PASSED
    except BarrierError as error:
        _log.error("%s", error)
        return error.code


def _end(number: int, _frame: Any) -> NoReturn:
    # As the first process of a container it would not even notice the signal without this.
    sys.exit(128 + number)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line, which takes no arguments but --help. Returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if list(arguments) in (["-h"], ["--help"]):
        sys.stdout.write(__doc__ or "")
        return EXIT_PASSED
    handler = logging.StreamHandler()
    formatter = logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    _log.addHandler(handler)
    _log.setLevel(logging.INFO)
    _log.propagate = False
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    if arguments:
        _log.error("no arguments are taken, only the environment: see --help")
        return EXIT_REFUSED
    return run(os.environ, Path())


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""frameworkbarrier: waits until every Task of its Framework has an IP address, and says which.

Run it as an init container of the Framework's Pods. When every Task that the spec asks for has a Pod with an IP, it
writes two files into the working directory and exits 0:

  framework.json   the Framework, with its task role statuses readable, however they are stored
  injector.sh      to be sourced by a shell; for each TaskRole, in upper case, it exports
                     FB_{ROLE}_IPS        the IPs of its Tasks, in order of index, with commas between
                     FB_{ROLE}_ADDRESSES  the same with :${FB_{ROLE}_PORT} after each, which the caller has set before

Exit codes, which are the completion codes of the Pod's Task:

    0   every Task has an IP
  201   they did not within the timeout: the Framework is to give back what it holds and try again later
  210   there is no such Framework, or a setting is wrong: no use to try again
    1   the Framework could not be read, for whatever reason, until the timeout

Environment:

  FC_FRAMEWORK_NAMESPACE, FC_FRAMEWORK_NAME    which Framework; every container of it is given both
  FC_FRAMEWORK_UID                             if given: no other Framework of that name will do
  FC_FRAMEWORK_ATTEMPT_INSTANCE_UID            if given: no other attempt of it will do
  BARRIER_CHECK_INTERVAL_SEC                   10, and not below 5
  BARRIER_CHECK_TIMEOUT_SEC                    600, from 60 to 1200
  KUBECONFIG, KUBE_APISERVER_ADDRESS           how to reach the API server; without them, the Pod's service account,
                                               which needs leave to `get` Frameworks

This file needs nothing but Python 3.7 or newer: copy it to where it is wanted.
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
import sys
import tempfile
import time
import zlib
from pathlib import Path
from urllib.parse import urlsplit

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
_MOST_OF_THE_TIME_ASKING = 0.1  # of a barrier's time, for the server's sake
_LONGEST_WISH_SEC = 60.0  # for which a server that is slow, or says Retry-After, is left alone
_MOST_BYTES = 64 << 20  # of an answer, and of what is unpacked from it: more than 10,000 Tasks can need
_MOST_VALUES = 2000000  # of what is unpacked: 10,000 Tasks have a third of that
_MOST_TASKS = 10000  # of a role
_LARGE_BYTES = 64 << 10  # from here on a Framework is read again only if it has changed
_MOST_EXPORTED_BYTES = 120 << 10  # Linux allows 128 KiB, the variable's name included

_FRAMEWORKS = "/apis/frameworkcontroller.microsoft.com/v1/namespaces/%s/frameworks/%s"
_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json"

_log = logging.getLogger("frameworkbarrier")


class BarrierError(Exception):
    """Why the barrier was not passed. ``code`` is what to exit with."""

    code = EXIT_UNKNOWN


class SettingsError(BarrierError):
    """What the barrier was told to do cannot be done; waiting does not help."""

    code = EXIT_REFUSED


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
        token: Callable[[], str] = str,
    ) -> None:
        """``token`` is called for each request; tokens of service accounts are replaced while a Pod runs.

        Raises SettingsError if the address is not one; ``named`` says whose it is.
        """
        wanted = f"{named} must be http[s]://host:port: {address!r}"
        try:
            url = urlsplit(address.strip())
            port = url.port
        except ValueError as error:
            raise SettingsError(f"{wanted} ({error})") from None
        if url.scheme not in ("http", "https") or not url.hostname or url.username is not None or url.query:
            raise SettingsError(wanted)
        self.address = address.strip()
        self._host = url.hostname
        self._port = port or (443 if url.scheme == "https" else 80)
        self._prefix = url.path.rstrip("/")
        self._tls = (tls or _tls_context(None, named)) if url.scheme == "https" else None
        self._tls_server_name = tls_server_name
        self._token = token

    def get(self, path: str, accept: str, timeout: float) -> tuple[int, Mapping[str, str], bytes]:
        """The status, headers (in lower case) and body of the answer to a GET, within ``timeout`` seconds.

        Raises CheckFailed.
        """
        deadline = time.monotonic() + timeout
        headers = {"Accept": accept, "User-Agent": "frameworkbarrier", "Connection": "close"}
        token = self._token()
        if token:
            headers["Authorization"] = "Bearer " + token
        connection = _Connection(self._host, self._port, timeout, self._tls, self._tls_server_name)
        try:
            connection.request("GET", self._prefix + path, headers=headers)
            response = connection.getresponse()
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


def connect(environ: Mapping[str, str], service_account: str = SERVICE_ACCOUNT) -> Server:
    """The API server that the environment names: by a kubeconfig, by its bare address, or by the Pod's service account.

    With a kubeconfig and an address, the kubeconfig's credentials are used at that address. Raises SettingsError.
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
        raise SettingsError(
            "no API server is known: neither $KUBE_APISERVER_ADDRESS nor $KUBECONFIG is set, "
            "and without $KUBERNETES_SERVICE_HOST and $KUBERNETES_SERVICE_PORT this is not a Pod"
        )
    token_file, ca_file = directory / "token", directory / "ca.crt"
    if not token_file.exists():
        raise SettingsError(f"{token_file} is not there: the Pod needs its service account's token mounted")
    tls = _tls_context(ca_file, str(ca_file))
    bracketed = f"[{host}]" if ":" in host else host
    return Server(f"https://{bracketed}:{port}", "$KUBERNETES_SERVICE_HOST", tls, None, _TokenFile(token_file))


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
        raise SettingsError(f"{named}: the certificate authority cannot be used: {_reason(error)}") from error
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
        raise SettingsError(f"kubeconfig {path}: {error}") from error


class _Unusable(Exception):
    """What is wrong with a kubeconfig."""


class _Kubeconfig:
    """The current context of a kubeconfig file. Raises _Unusable."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        if not self._path.exists() and os.pathsep in path:
            raise _Unusable("several files are not supported; merge them with `kubectl config view --raw --flatten`")
        try:
            text = self._path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise _Unusable(_reason(error)) from error
        self._config = _mapping(_parse(text), "it")
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
        for key in ("exec", "auth-provider", "username", "as", "as-uid", "as-groups", "as-user-extra"):
            if self._user.get(key):
                raise _Unusable(f"{key} is not supported: only tokens and client certificates are")
        url = address or _text(self._cluster, "server")
        if not url:
            raise _Unusable("its cluster names no server")
        named = "$KUBE_APISERVER_ADDRESS" if address else f"kubeconfig {self._path}: server"
        return Server(url, named, self._tls(), _text(self._cluster, "tls-server-name") or None, self._token())

    def _token(self) -> Callable[[], str]:
        token = _text(self._user, "token")
        if token:
            try:
                token = _sendable(token)
            except ValueError:
                raise _Unusable("its token holds characters that no token has") from None
        file = _text(self._user, "tokenFile")
        return _TokenFile(self._path.parent / file, token) if file else lambda: token

    def _tls(self) -> ssl.SSLContext:
        named = f"kubeconfig {self._path}"
        ca = self._data(self._cluster, "certificate-authority-data")
        ca_file = None if ca else self._file(self._cluster, "certificate-authority")
        verify = self._cluster.get("insecure-skip-tls-verify")
        if verify not in (None, True, False):
            raise _Unusable("insecure-skip-tls-verify must be true or false")
        context = _tls_context(ca_file, named, ca.decode("latin-1") if ca else None, not verify)
        files = [self._file(self._user, "client-certificate"), self._file(self._user, "client-key")]
        contents = [self._data(self._user, "client-certificate-data"), self._data(self._user, "client-key-data")]
        try:
            if any(contents):
                # The ssl module takes them as files only.
                with tempfile.TemporaryDirectory() as directory:
                    for position, content in enumerate(contents):
                        if content:
                            file = Path(directory) / str(position)
                            file.write_bytes(content)
                            files[position] = file
                    self._load(context, *files)
            else:
                self._load(context, *files)
        except OSError as error:
            raise _Unusable(f"its client certificate cannot be used: {_reason(error)}") from error
        return context

    @staticmethod
    def _load(context: ssl.SSLContext, certificate: Path | None, key: Path | None) -> None:
        if certificate is not None:
            # Without a password, OpenSSL asks the terminal for that of an encrypted key.
            context.load_cert_chain(str(certificate), str(key) if key else None, password="")

    def _file(self, section: dict[str, Any], key: str) -> Path | None:
        name = _text(section, key)
        return self._path.parent / name if name else None

    @staticmethod
    def _data(section: dict[str, Any], key: str) -> bytes:
        try:
            return base64.b64decode("".join(_text(section, key).split()), validate=True)
        except ValueError as error:
            raise _Unusable(f"{key} is not base64") from error


def _mapping(value: Any, named: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Unusable(f"{named} is not a mapping")
    return value


def _text(section: dict[str, Any], key: str) -> str:
    value = section.get(key)
    if value is not None and not isinstance(value, str):
        raise _Unusable(f"{key} must be text")
    return value or ""


def _parse(text: str) -> Any:
    """The content of a kubeconfig: JSON, or YAML as it is commonly written (see _Yaml). Raises _Unusable."""
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text)
        except ValueError as error:
            raise _Unusable(f"it is not JSON: {error}") from error
    return _Yaml(text).document()


class _Yaml:
    """Reads the YAML that kubectl and most tools write kubeconfigs in. Python has no reader of its own.

    That is: mappings and lists in block style, one-line scalars plain or quoted, comments. Anything else is refused
    with its line, never guessed at. Plain scalars are text, but for true, false and null.
    """

    _KEY = re.compile(r"""((?:[^\s:'"#\[\]{},&*!|>%@`?-]|-(?=\S))[^:#'"]*?|"[^"\\]*"|'[^']*')\s*:(?:\s+|$)""")
    _UNSEEN = re.compile(r"[^\S ]|[\x00-\x1f\x7f-\x9f]")
    _DEEPEST = 50

    def __init__(self, text: str) -> None:
        self._lines: list[tuple[int, int, str]] = []
        begun = False
        for number, line in enumerate(text.split("\n"), 1):
            content = line.strip(" \r")
            indent = len(line) - len(line.lstrip(" "))
            comment = content.startswith("#")
            # To YAML some of these end a line. Tabs are well in comments, and trouble anywhere else.
            if self._UNSEEN.search(content.replace("\t", "") if comment else content):
                self._refuse(number, "a tab, or a character that cannot be seen,")
            if not content or comment:
                continue
            if content == "---" and indent == 0 and not begun:
                begun = True
                continue
            begun = True
            if indent == 0 and content.startswith(("---", "...", "%")):
                self._refuse(number, "more than one document")
            self._lines.append((number, indent, content))
        self._next = 0

    def document(self) -> Any:
        """The whole file. Raises _Unusable."""
        if not self._lines:
            return None
        value = self._block(self._lines[0][1], 0)
        if self._next < len(self._lines):
            self._refuse(self._lines[self._next][0], "this indentation")
        return value

    def _block(self, indent: int, depth: int) -> Any:
        number, _, content = self._lines[self._next]
        if depth > self._DEEPEST:
            self._refuse(number, "such deep nesting")
        if self._is_item(content):
            return self._list(indent, depth)
        return self._map(indent, depth)

    def _list(self, indent: int, depth: int) -> list[Any]:
        items = []
        while self._next < len(self._lines):
            number, found, content = self._lines[self._next]
            if found != indent or not self._is_item(content):
                break
            rest = content[1:].lstrip(" ")
            if not rest or rest.startswith("#"):
                self._next += 1
                items.append(self._nested(indent + 1, depth))
            elif self._KEY.match(rest) or self._is_item(rest):
                # The item's first line stands on the same line as its dash.
                inner = indent + len(content) - len(rest)
                self._lines[self._next] = (number, inner, rest)
                items.append(self._block(inner, depth + 1))
            else:
                self._next += 1
                items.append(self._scalar(number, rest))
        return items

    def _map(self, indent: int, depth: int) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        while self._next < len(self._lines):
            number, found, content = self._lines[self._next]
            if found != indent or self._is_item(content):
                break
            match = self._KEY.match(content)
            if match is None:
                self._refuse(number, "this line")
            key = match.group(1)
            key = key[1:-1] if key[0] in "'\"" else key
            if key in entries:
                self._refuse(number, f"the key {key} again")
            rest = content[match.end() :]
            self._next += 1
            if rest and not rest.startswith("#"):
                entries[key] = self._scalar(number, rest)
                continue
            # A list may stand at the same indentation as its key.
            following = self._lines[self._next] if self._next < len(self._lines) else (0, -1, "")
            as_deep = following[1] == indent and self._is_item(following[2])
            entries[key] = self._nested(indent if as_deep else indent + 1, depth)
        return entries

    @staticmethod
    def _is_item(content: str) -> bool:
        return content == "-" or content.startswith("- ")

    def _nested(self, least: int, depth: int) -> Any:
        if self._next == len(self._lines) or self._lines[self._next][1] < least:
            return None
        return self._block(self._lines[self._next][1], depth + 1)

    def _scalar(self, number: int, text: str) -> Any:
        if text[0] == "'":
            quoted = re.fullmatch(r"'((?:[^']|'')*)'\s*(?:\s#.*)?", text)
            if quoted is not None:
                return quoted.group(1).replace("''", "'")
        elif text[0] == '"':
            # Its escapes are JSON's, and more, which are refused.
            quoted = re.fullmatch(r'("(?:[^"\\]|\\["\\/bfnrtu])*")\s*(?:\s#.*)?', text)
            if quoted is not None:
                try:
                    return json.loads(quoted.group(1))
                except ValueError:
                    pass
        elif text[0] in "[{":
            try:
                return json.loads(text)
            except ValueError:
                pass
        elif re.match(r"[&*!|>%@`\]},#]|[-?:](\s|$)", text) is None:
            plain = re.split(r"\s#", text, maxsplit=1)[0].strip()
            if ": " not in plain and not plain.endswith(":"):
                return {"true": True, "false": False, "null": None, "~": None}.get(plain, plain)
        return self._refuse(number, "this value")

    @staticmethod
    def _refuse(number: int, what: str) -> NoReturn:
        raise _Unusable(
            f"line {number}: {what} is beyond the simple YAML that is read here; "
            "write it as JSON: kubectl config view --raw --flatten --minify -o json"
        )


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
    """A script for dash, bash and their like that exports the addresses of each role, with the ports set by then."""
    lines = [
        "# Made by frameworkbarrier, to be sourced. Set FB_{ROLE}_PORT before, for each role whose ADDRESSES you need;",
        "# source it again after setting other ports.",
    ]
    for role, of_role in ips.items():
        prefix = "FB_" + role.upper()
        # Brackets as in URLs, or nobody could tell an IPv6 address from its port.
        hosts = [f"[{ip}]" if ":" in ip else ip for ip in of_role]
        lines.append("")
        lines += _export(prefix + "_IPS", ",".join(of_role))
        lines += _export(prefix + "_ADDRESSES", ",".join(f"{host}:${{{prefix}_PORT-}}" for host in hosts))
    return "\n".join(lines) + "\n"


def _export(variable: str, value: str) -> list[str]:
    # The value is addresses and the name of a variable. What that one holds, the shell does not read as its language.
    if len(value) < _MOST_EXPORTED_BYTES:
        return [f'export {variable}="{value}"']
    # Linux starts no program with a variable of 128 KiB or more in its environment, whichever program it is.
    return [
        f"unset {variable}",
        f'{variable}="{value}"',
        f'if [ "${{#{variable}}}" -lt {_MOST_EXPORTED_BYTES} ]; then',
        f"    export {variable}",
        "else",
        f"    echo 'injector.sh: {variable} is set for this shell only: too long to be exported' >&2",
        "fi",
    ]


def write_files(directory: Path, framework: dict[str, Any], ips: Mapping[str, Sequence[str]]) -> None:
    """Write framework.json and injector.sh, each at once, the script last. Raises BarrierError."""
    try:
        content = json.dumps(framework, separators=(",", ":")) + "\n"
        _replace(directory / "framework.json", content)
        _replace(directory / "injector.sh", injector(ips))
    except OSError as error:
        raise BarrierError(f"cannot write to {directory.absolute()}: {_reason(error)}") from error


def check_writable(directory: Path) -> None:
    """Raises SettingsError if no file can be made there: better said now than after minutes of waiting."""
    probe = directory / f".frameworkbarrier.{os.getpid()}"
    try:
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise SettingsError(f"cannot write to {directory.absolute()}: {_reason(error)}") from error


def _replace(path: Path, content: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content.encode("utf-8"))
        # Whoever the other containers run as, they are to read it, whatever the umask here.
        temporary.chmod(0o644)
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

"""Parse kubeconfig files as kubectl does, and merge them.

Unlike kubectl, it reads numbers and times as text, refuses a context whose user does not exist, and takes ``~`` for the
home directory.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

import yaml

from frameworkcontroller.kubeconfig.tls import Pem, Tls

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"

_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


class KubeconfigError(Exception):
    """A kubeconfig that cannot be used; the text says why, and quotes no secret."""


class Kubeconfig:
    """One context: a cluster and a user.

    All methods raise KubeconfigError.
    """

    def __init__(
        self,
        cluster: dict[str, Any],
        user: dict[str, Any],
        namespace: str = "",
        user_name: str = "",
        user_file: str = "",
    ) -> None:
        """``cluster`` and ``user``: as in a kubeconfig, with absolute file names. ``user_file``: where the user is."""
        self.cluster, self.user, self.namespace = cluster, user, namespace or None
        self.user_name, self.user_file = user_name, user_file
        self.context = ""
        self._token, self._token_file = text(user, "token").strip(), text(user, "tokenFile")
        self._user_and_password = (text(user, "username"), text(user, "password"))
        if not re.fullmatch(r"[ -~]*", self._token):
            raise KubeconfigError("its token contains characters that no header can have")
        if self._user_and_password[0] and (self._token or self._token_file):
            raise KubeconfigError("its user has both a token and a username")

    @classmethod
    def read(cls, paths: str, context: str | None = None) -> Kubeconfig:
        """Read the files in ``paths``, which ``:`` separates; files that do not exist are skipped.

        The first file with a current-context, or with an entry of some name, wins. ``context`` replaces the
        current-context.
        """
        present = existing(paths)
        if not present:
            raise KubeconfigError("no such file")
        chosen = context or ""
        entries: dict[tuple[str, str], tuple[Any, str]] = {}
        for file in present:
            current, of_file = _read(file, several=os.pathsep in paths)
            chosen = chosen or current
            entries = {**of_file, **entries}
        if not chosen:
            raise KubeconfigError("no current-context is set")

        def find(kind: str, name: str) -> tuple[dict[str, Any], str]:
            if (kind, name) not in entries:
                raise KubeconfigError(f"there is no {kind} {name!r}")
            value, file = entries[kind, name]
            return _with_absolute_names(mapping({} if value is None else value, f"{kind} {name!r}"), file), file

        section, _ = find("context", chosen)
        cluster_name, user_name = text(section, "cluster"), text(section, "user")
        if not cluster_name:
            raise KubeconfigError(f"context {chosen!r} names no cluster")
        cluster, _ = find("cluster", cluster_name)
        user, user_file = find("user", user_name) if user_name else ({}, "")
        found = cls(cluster, user, text(section, "namespace"), user_name, user_file)
        found.context = chosen
        return found

    @classmethod
    def of_service_account(cls, environ: Mapping[str, str], directory: Path) -> Kubeconfig:
        """The API server of a Pod, and its service account, which is mounted at ``directory``."""
        host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
        if not host or not port:
            raise KubeconfigError(
                "no API server is known: $KUBERNETES_SERVICE_HOST and $KUBERNETES_SERVICE_PORT are not set"
            )
        token_file = directory / "token"
        if not token_file.exists():
            raise KubeconfigError(f"{token_file} is not there: the Pod needs its service account's token mounted")
        try:
            namespace = (directory / "namespace").read_text(encoding="utf-8").strip()
        except OSError:
            namespace = ""
        bracketed = f"[{host}]" if ":" in host else host
        cluster = {"server": f"https://{bracketed}:{port}", "certificate-authority": str(directory / "ca.crt")}
        return cls(cluster, {"tokenFile": str(token_file)}, namespace)

    @property
    def has_credentials(self) -> bool:
        """True if the user has a token or a password, which take precedence over credential plugins."""
        return bool(self._token or self._token_file or self._user_and_password[0])

    def server(self) -> str:
        """The address of the API server."""
        server = text(self.cluster, "server")
        if not server:
            raise KubeconfigError("its cluster names no server")
        return server

    def extension(self, name: str) -> dict[str, Any]:
        """The extension of the cluster with that name, empty if it has none."""
        entries = self.cluster.get("extensions") or ()
        found = next((one for one in entries if isinstance(one, dict) and one.get("name") == name), {})
        return mapping(found.get("extension") or {}, f"extension {name}")

    def proxy(self) -> str | None:
        """The URL of the proxy to the API server."""
        return text(self.cluster, "proxy-url") or None

    def authorization(self) -> str | None:
        """The value of the header ``Authorization``; a token file is read at each call."""
        if self._user_and_password[0]:
            return "Basic " + base64.b64encode(":".join(self._user_and_password).encode()).decode()
        token = self._token
        if self._token_file:
            try:
                token = Path(self._token_file).read_bytes().decode("ascii", "replace").strip()
                if not is_token(token):
                    raise KubeconfigError(f"token file {self._token_file} holds no token")
            except OSError as error:
                if not token:
                    raise KubeconfigError(f"token file {self._token_file}: {error.strerror or error}") from error
        return "Bearer " + token if token else None

    def impersonation(self) -> list[tuple[str, str]]:
        """Headers of a user who acts as another one."""
        headers = [("Impersonate-User", text(self.user, "as")), ("Impersonate-Uid", text(self.user, "as-uid"))]
        headers += [("Impersonate-Group", group) for group in texts(self.user, "as-groups")]
        extra = mapping(self.user.get("as-user-extra") or {}, "as-user-extra")
        for key in extra:
            headers += [("Impersonate-Extra-" + quote(str(key), safe=""), value) for value in texts(extra, key)]
        headers = [(name, value) for name, value in headers if value]
        if headers and headers[0][0] != "Impersonate-User":
            raise KubeconfigError("it impersonates groups, a UID or extra values, and no user")
        return headers

    def tls(self) -> Tls:
        """The TLS settings; certificates are read at each call."""
        ca = self._pem(self.cluster, "certificate-authority")
        verify = self.cluster.get("insecure-skip-tls-verify")
        if verify not in (None, True, False):
            raise KubeconfigError("insecure-skip-tls-verify must be true or false")
        return Tls(
            ca=None if ca is None else ca.content,
            certificate=self._pem(self.user, "client-certificate"),
            key=self._pem(self.user, "client-key"),
            verify=not verify,
            server_name=text(self.cluster, "tls-server-name") or None,
        )

    @staticmethod
    def _pem(section: dict[str, Any], key: str) -> Pem | None:
        encoded = text(section, key + "-data")
        if encoded:
            try:
                return Pem(base64.b64decode("".join(encoded.split()), validate=True))
            except ValueError as error:
                raise KubeconfigError(f"{key}-data is not base64") from error
        file = text(section, key)
        if not file:
            return None
        try:
            return Pem(Path(file).read_bytes(), file)
        except OSError as error:
            raise KubeconfigError(f"{key} {file} cannot be used: {error.strerror or error}") from error


def existing(paths: str) -> list[str]:
    """The files in ``paths``, which ``:`` separates, that exist; none if they may not be looked up."""
    files = [os.path.expanduser(path) for path in paths.split(os.pathsep) if path]  # noqa: PTH111 - raises nothing
    return [file for file in files if os.path.exists(file)]  # noqa: PTH110 - raises nothing


def split_address(address: str, named: str) -> SplitResult:
    """The parts of an API server's address; errors call it ``named``, and quote no password."""
    wanted = f"{named} must be http[s]://host:port"
    try:
        url = urlsplit(address.strip())
        port = url.port
    except ValueError as error:
        raise KubeconfigError(f"{wanted} ({error})") from None
    if url.username is not None or url.query or url.fragment:
        raise KubeconfigError(f"{wanted}, without user, query or fragment")
    if url.scheme not in ("http", "https") or not url.hostname or port == 0:
        raise KubeconfigError(f"{wanted}: {address!r}")
    return url


def is_token(token: str) -> bool:
    """True if it looks like a token: HTTP clients quote others in their errors."""
    return re.fullmatch(r"[!-~]+", token) is not None


def mapping(value: Any, named: str) -> dict[str, Any]:
    """The value, a mapping."""
    if not isinstance(value, dict):
        raise KubeconfigError(f"{named} is not a mapping")
    return value


def mappings(section: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """The list of mappings under the key."""
    values = section.get(key) or []
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise KubeconfigError(f"{key} must be a list of mappings")
    return values


def text(section: dict[str, Any], key: str) -> str:
    """The text under the key."""
    value = section.get(key)
    if value is not None and not isinstance(value, str):
        raise KubeconfigError(f"{key} must be text")
    return value or ""


def texts(section: dict[str, Any], key: str) -> list[str]:
    """The list of texts under the key."""
    values = section.get(key) or []
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise KubeconfigError(f"{key} must be a list of text")
    return values


def _read(file: str, several: bool) -> tuple[str, dict[tuple[str, str], tuple[Any, str]]]:
    """The current-context; the entries by kind and name, each with the file. ``several``: errors name the file."""
    try:
        document = _document(Path(file).read_bytes())
        entries: dict[tuple[str, str], tuple[Any, str]] = {}
        for kind in ("context", "cluster", "user"):
            for entry in mappings(document, kind + "s"):
                entries.setdefault((kind, text(entry, "name")), (entry.get(kind), file))
        return text(document, "current-context"), entries
    except (OSError, KubeconfigError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise KubeconfigError(f"{file}: {problem}" if several else problem) from None


def _with_absolute_names(section: dict[str, Any], file: str) -> dict[str, Any]:
    folder = Path(file).absolute().parent

    def absolute(name: str) -> str:
        return os.path.normpath(folder / name)

    named: dict[str, Any] = {key: absolute(text(section, key)) for key in _FILES if section.get(key)}
    plugin = section.get("exec")
    if isinstance(plugin, dict) and "/" in text(plugin, "command"):
        # As in shells: a name without a slash is looked up in $PATH.
        named["exec"] = {**plugin, "command": absolute(plugin["command"])}
    return {**section, **named}


def _document(content: bytes) -> dict[str, Any]:
    """The first document of a kubeconfig, JSON or YAML. As in kubectl, nothing after it is parsed."""
    try:
        document = _json(content)
        if document is None:
            # Not yaml.load, which parses all documents. Not libyaml, which crashes on deep nesting.
            loader: Any = _Loader(content)
            loader.deep_construct = True  # refuses a value that contains itself
            document = loader.get_data() if loader.check_data() else None
    except (yaml.YAMLError, ValueError, TypeError, AttributeError) as error:
        # The error's own text quotes lines of the file, which may hold a token.
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark is not None else ""
        problem = getattr(error, "problem", None) or type(error).__name__
        raise KubeconfigError(f"{line}it is not YAML: {problem}") from None
    except RecursionError:
        raise KubeconfigError("it is nested too deeply") from None
    return mapping({} if document is None else document, "it")


def _json(content: bytes) -> Any:
    """The JSON object at the beginning; None if there is none."""
    try:
        start = content.decode("utf-8-sig").lstrip()
        return json.JSONDecoder().raw_decode(start)[0] if start.startswith("{") else None
    except ValueError:
        return None


class _Loader(yaml.SafeLoader):
    """Reads numbers and times as text, since a kubeconfig has neither, and ignores unknown tags."""

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


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag.rpartition(":")[2] in ("bool", "merge", "null")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_constructor(None, _Loader.untagged)

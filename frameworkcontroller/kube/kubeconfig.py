"""Reads kubeconfig files and a Pod's service account, by way of kubernetes-asyncio where it takes that.

That library is used for this alone: it knows the files, the credential plugins and their refreshing. It is imported
when first needed, since it brings all of its generated models along (tens of MiB, a fifth of a second).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml

from frameworkcontroller.kube.errors import ConnectionConfigError
from frameworkcontroller.kube.plainkubeconfig import read_plain_kubeconfig

_TOKEN_FILE_SECONDS: Final = 60.0
_EXEC_TIMEOUT_SECONDS: Final = 60.0
_LEAST_RENEWAL_SECONDS: Final = 10.0
_RENEWAL_AT: Final = 0.8  # of a credential's remaining life


@dataclass(frozen=True, slots=True)
class Access:
    """An API server's address, how to trust it, and what to show it, as read at one moment."""

    server: str
    authorization: str | None = None
    """The value of the ``Authorization`` header."""
    impersonate: tuple[tuple[str, str], ...] = ()
    """``Impersonate-`` headers."""
    ca_file: str | None = None
    client_cert_file: str | None = None
    client_key_file: str | None = None
    verify: bool = True
    tls_server_name: str | None = None
    proxy: str | None = None
    namespace: str | None = field(default=None, compare=False)
    """The one to work in unless told otherwise: of the kubeconfig's context, or of the Pod."""
    renew_after: float | None = field(default=None, compare=False)
    """Seconds after which to read again, or None if only a refusal is a reason to."""


async def read_kubeconfig(
    paths: str,
    *,
    context: str | None = None,
    address: str | None = None,
    wall: Callable[[], float] = time.time,
) -> Access:
    """The access that kubeconfig files (one, or several separated by ``:``) give.

    ``address`` replaces the server they name. Runs credential plugins, afresh at each call.
    Raises ConnectionConfigError, naming the file.
    """
    plain = read_plain_kubeconfig(paths, context, address)
    if plain is None:
        return await read_by_library(paths, context=context, address=address, wall=wall)
    return Access(
        server=plain.server,
        authorization=None if plain.token is None else f"Bearer {plain.token}",
        ca_file=plain.ca_file,
        client_cert_file=plain.client_cert_file,
        client_key_file=plain.client_key_file,
        verify=plain.verify,
        tls_server_name=plain.tls_server_name,
        namespace=plain.namespace,
    )


def any_exists(paths: str) -> bool:
    """Whether there is any of these files, which ``:`` separates."""
    try:
        return any(Path(path).expanduser().exists() for path in paths.split(os.pathsep) if path)
    except (OSError, RuntimeError):
        # It may not be looked at, or is beyond a home that nobody has.
        return False


async def read_by_library(paths: str, *, context: str | None, address: str | None, wall: Callable[[], float]) -> Access:
    """The same, whatever the files hold."""
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config import ConfigException, kube_config
    from kubernetes_asyncio.config.kube_config import KubeConfigLoader, KubeConfigMerger

    if not any_exists(paths):
        raise ConnectionConfigError(f"kubeconfig {paths}: no such file")
    # It would go on naming the files that it once wrote, which systems clean away after some days.
    written = kube_config._temp_files
    for content in [content for content, file in written.items() if not Path(file).is_file()]:
        del written[content]
    try:
        merger = KubeConfigMerger(paths)
        chosen = _choose(merger.config, context, address)
        configuration = Configuration()
        loader = KubeConfigLoader(
            config_dict=chosen.config,
            active_context=chosen.context,
            config_base_path=None,
            # Some identity providers hand out a new refresh token each time: unless it is written back, as kubectl
            # does, the file is worthless afterwards. Only the user entries are shared with what is written.
            config_persister=merger.save_changes,
        )
        async with asyncio.timeout(_EXEC_TIMEOUT_SECONDS):
            await loader.load_and_set(configuration)
    except ConnectionConfigError as error:
        raise ConnectionConfigError(f"kubeconfig {paths}: {error}") from error
    except TimeoutError as error:
        raise ConnectionConfigError(
            f"kubeconfig {paths}: its credentials did not come within {_EXEC_TIMEOUT_SECONDS:.0f} s"
        ) from error
    except (ConfigException, yaml.YAMLError, OSError, ValueError) as error:
        raise ConnectionConfigError(f"kubeconfig {paths}: {error}") from error
    except (TypeError, KeyError, AttributeError, AssertionError, IndexError) as error:
        # The library checks no types: a list where a mapping should be ends in one of these.
        raise ConnectionConfigError(
            f"kubeconfig {paths}: not of the form of a kubeconfig ({type(error).__name__}: {error})"
        ) from error
    user = chosen.user
    authorization = _header(configuration.api_key.get("BearerToken"))
    if "exec" in user and authorization is None and configuration.cert_file is None:
        raise ConnectionConfigError(f"kubeconfig {paths}: its exec plugin gave neither a token nor a certificate")
    return Access(
        server=configuration.host or "",
        authorization=authorization,
        impersonate=_impersonation(user),
        ca_file=configuration.ssl_ca_cert,
        client_cert_file=configuration.cert_file,
        client_key_file=configuration.key_file,
        verify=bool(configuration.verify_ssl),
        tls_server_name=configuration.tls_server_name,
        proxy=configuration.proxy,
        namespace=chosen.namespace,
        renew_after=_renewal(user, loader, wall()),
    )


def read_service_account(environ: Mapping[str, str], directory: str | None = None) -> Access:
    """The access that a Pod's service account gives. Raises ConnectionConfigError, naming what is missing."""
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config import ConfigException
    from kubernetes_asyncio.config.incluster_config import (
        SERVICE_CERT_FILENAME,
        SERVICE_TOKEN_FILENAME,
        InClusterConfigLoader,
    )

    token_file, ca_file = SERVICE_TOKEN_FILENAME, SERVICE_CERT_FILENAME
    if directory is not None:
        token_file, ca_file = f"{directory}/token", f"{directory}/ca.crt"
    configuration = Configuration()
    try:
        # Its own refreshing is left off: renew_after says the same for all kinds of credentials.
        InClusterConfigLoader(
            token_filename=token_file, cert_filename=ca_file, try_refresh_token=False, environ=dict(environ)
        ).load_and_set(configuration)
    except (ConfigException, OSError, ValueError) as error:
        raise ConnectionConfigError(
            f"in-cluster configuration: {error} (reads $KUBERNETES_SERVICE_HOST, $KUBERNETES_SERVICE_PORT, "
            f"{token_file}, {ca_file})"
        ) from error
    return Access(
        server=configuration.host or "",
        authorization=_header(configuration.api_key.get("BearerToken")),
        ca_file=configuration.ssl_ca_cert,
        namespace=_text_of(Path(token_file).with_name("namespace")),
        renew_after=_TOKEN_FILE_SECONDS,
    )


@dataclass(frozen=True, slots=True)
class _Chosen:
    config: Any
    context: str
    user: Mapping[str, Any]
    namespace: str | None


def _choose(merged: Any, context: str | None, address: str | None) -> _Chosen:
    """The context to use, in a config whose context and cluster entries are copies with what is missing filled in."""
    from kubernetes_asyncio.config.kube_config import ConfigNode

    config = merged.value
    context = context or config.get("current-context")
    if not context:
        raise ConnectionConfigError("no current-context is set")
    context_node = _find(config["contexts"], "context", context)
    cluster_name = context_node.value["context"].get("cluster")
    if not cluster_name:
        raise ConnectionConfigError(f"context {context!r} names no cluster")
    cluster_node = _find(config["clusters"], "cluster", cluster_name)
    cluster = dict(cluster_node.value["cluster"])
    if address is not None:
        cluster["server"] = address
    if not cluster.get("server"):
        raise ConnectionConfigError(f"cluster {cluster_name!r} names no server")
    user_name = context_node.value["context"].get("user")
    if user_name:
        user_node = _find(config["users"], "user", user_name)
    else:
        # To the library, https without a user is an error; it is simply anonymous.
        user_name = "anonymous"
        user_node = ConfigNode("users", {"name": user_name, "user": {}}, merged.path)
    context_entry = {"name": context, "context": {"cluster": cluster_name, "user": user_name}}
    chosen = dict(config)
    chosen["contexts"] = [ConfigNode(context_node.name, context_entry, context_node.path)]
    chosen["clusters"] = [ConfigNode(cluster_node.name, {"name": cluster_name, "cluster": cluster}, cluster_node.path)]
    chosen["users"] = [user_node]
    namespace = context_node.value["context"].get("namespace")
    return _Chosen(ConfigNode(merged.name, chosen, merged.path), context, user_node.value["user"], namespace or None)


def _find(nodes: Any, kind: str, name: str) -> Any:
    """The entry of that name in a list whose entries hold a mapping under ``kind``."""
    for node in nodes:
        if node.value.get("name") == name:
            if not isinstance(node.value.get(kind), Mapping):
                raise ConnectionConfigError(f"{kind} {name!r} is not a mapping")
            return node
    raise ConnectionConfigError(f"there is no {kind} {name!r}")


def _text_of(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


def _header(token: Any) -> str | None:
    # Token files end in a newline as often as not, which no header may contain.
    text = str(token).strip() if token else ""
    return None if text in ("", "Bearer") else text


def _impersonation(user: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The library passes over these; to act as somebody else than told would be worse than not to act."""
    headers: list[tuple[str, str]] = []
    if user.get("as"):
        headers.append(("Impersonate-User", str(user["as"])))
    if user.get("as-uid"):
        headers.append(("Impersonate-Uid", str(user["as-uid"])))
    headers += [("Impersonate-Group", str(group)) for group in user.get("as-groups") or ()]
    for key, values in (user.get("as-user-extra") or {}).items():
        headers += [(f"Impersonate-Extra-{key}", str(value)) for value in values]
    return tuple(headers)


def _renewal(user: Mapping[str, Any], loader: Any, now: float) -> float | None:
    if "auth-provider" in user or "tokenFile" in user:
        return _TOKEN_FILE_SECONDS
    expiry = getattr(loader, "exec_plugin_expiry", None)
    if isinstance(expiry, datetime):
        if expiry.tzinfo is None:
            expiry = expiry.replace(tzinfo=UTC)
        return max(_LEAST_RENEWAL_SECONDS, _RENEWAL_AT * (expiry.timestamp() - now))
    return None

"""The access to an API server by kubeconfigs and by a Pod's service account.

kubernetes-asyncio refreshes the tokens of an auth-provider. It is imported when first needed, since it loads all of its
generated models (tens of MiB, a fifth of a second).
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import yaml

from frameworkcontroller.extras import EXTRA_OF, missing_library, needs
from frameworkcontroller.kube.errors import ConnectionConfigError
from frameworkcontroller.kubeconfig.plugin import Plugin
from frameworkcontroller.kubeconfig.reader import SERVICE_ACCOUNT, Kubeconfig, KubeconfigError
from frameworkcontroller.kubeconfig.tls import Tls

EXTENSION: Final = "frameworkcontroller.microsoft.com"
"""The name of the extension of a cluster in a kubeconfig that is for this project."""

_TOKEN_FILE_SECONDS: Final = 60.0
_PROVIDER_TIMEOUT_SECONDS: Final = 60.0
_LEAST_RENEWAL_SECONDS: Final = 10.0
_RENEWAL_AT: Final = 0.8  # of a credential's remaining life


@dataclass(frozen=True, slots=True)
class ServerAccess:
    """An API server's address, TLS settings and credentials, as read at one moment."""

    server: str
    authorization: str | None = None
    """The value of the ``Authorization`` header."""
    impersonate: tuple[tuple[str, str], ...] = ()
    """``Impersonate-`` headers."""
    tls: Tls = field(default_factory=Tls)
    proxy: str | None = None
    namespace: str | None = field(default=None, compare=False)
    """The default namespace: of the kubeconfig's context, or of the Pod."""
    context: str = field(default="", compare=False)
    """The name of the kubeconfig's context."""
    extension: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The extension ``EXTENSION`` of the kubeconfig's cluster."""
    renew_after: float | None = field(default=None, compare=False)
    """Seconds after which to read again, or None if only a refusal is a reason to."""


async def read_kubeconfig(paths: str, *, context: str | None = None, address: str | None = None) -> ServerAccess:
    """The access by kubeconfig files (one, or several separated by ``:``).

    ``address`` replaces the server that they name. Runs credential plugins, afresh at each call.
    Raises ConnectionConfigError, naming the file.
    """
    try:
        config = Kubeconfig.read(paths, context)
        access = _access(config, address)
        if config.has_credentials:
            return access
        if config.user.get("auth-provider"):
            return await _with_provider(access, config)
        return await asyncio.to_thread(_with_plugin, access, config) if config.user.get("exec") else access
    except (KubeconfigError, ConnectionConfigError) as error:
        raise ConnectionConfigError(f"kubeconfig {paths}: {error}") from error


def _access(config: Kubeconfig, address: str | None = None) -> ServerAccess:
    """The access without the credentials of a plugin. Raises KubeconfigError."""
    server = (address or config.server()).rstrip("/")
    return ServerAccess(
        server=server,
        authorization=config.authorization(),
        impersonate=tuple(config.impersonation()),
        tls=config.tls() if server.startswith("https") else Tls(),
        proxy=config.proxy(),
        namespace=config.namespace,
        context=config.context,
        extension=config.extension(EXTENSION),
        renew_after=_TOKEN_FILE_SECONDS if config.user.get("tokenFile") else None,
    )


def _with_plugin(access: ServerAccess, config: Kubeconfig) -> ServerAccess:
    """Add the credentials of the exec plugin. Raises KubeconfigError."""
    token, tls, expires = Plugin(config, access.tls, access.server, interactive=os.isatty(0)).run()
    renew_after = None if math.isinf(expires) else max(_LEAST_RENEWAL_SECONDS, _RENEWAL_AT * (expires - time.time()))
    authorization = f"Bearer {token}" if token else None
    return replace(access, authorization=authorization, tls=tls or access.tls, renew_after=renew_after)


async def _with_provider(access: ServerAccess, config: Kubeconfig) -> ServerAccess:
    """Add the token of the auth-provider. Raises ConnectionConfigError."""
    try:
        from kubernetes_asyncio.client import Configuration
        from kubernetes_asyncio.config import ConfigException, kube_config
    except ModuleNotFoundError as error:
        if not (library := missing_library(error)):
            raise
        raise ConnectionConfigError(f"auth-provider {needs(EXTRA_OF[library])}") from None

    entries = {
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": access.server}}],
        "users": [{"name": "x", "user": {"auth-provider": config.user["auth-provider"]}}],
    }
    configuration = Configuration()
    try:
        loader = kube_config.KubeConfigLoader(entries, "x", config_persister=lambda _: _write_back(config))
        async with asyncio.timeout(_PROVIDER_TIMEOUT_SECONDS):
            await loader.load_and_set(configuration)
    except TimeoutError as error:
        problem = f"its credentials did not come within {_PROVIDER_TIMEOUT_SECONDS:.0f} s"
        raise ConnectionConfigError(problem) from error
    except yaml.YAMLError as error:
        # Its own text quotes lines of the file, which may hold a token.
        problem = getattr(error, "problem", None) or type(error).__name__
        raise ConnectionConfigError(f"refreshed tokens cannot be written to {config.user_file}: {problem}") from None
    except (ConfigException, OSError, ValueError) as error:
        raise ConnectionConfigError(str(error)) from error
    except (TypeError, KeyError, AttributeError, AssertionError, IndexError) as error:
        # The library checks no types: a list in place of a mapping ends in one of these.
        raise ConnectionConfigError(f"not of the form of a kubeconfig ({type(error).__name__}: {error})") from error
    # Tokens may end in a newline, which no header may contain.
    bearer = str(configuration.api_key.get("BearerToken") or "").strip()
    authorization = None if bearer in ("", "Bearer") else bearer
    return replace(access, authorization=authorization, renew_after=_TOKEN_FILE_SECONDS)


def _write_back(config: Kubeconfig) -> None:
    """Store refreshed tokens in the file that they came from, as kubectl does.

    Some identity providers hand out a new refresh token each time, and the old one becomes worthless.
    """
    file = Path(config.user_file)
    document = next(iter(yaml.safe_load_all(file.read_bytes())))
    for entry in document["users"]:
        if entry["name"] == config.user_name:
            entry["user"]["auth-provider"] = config.user["auth-provider"]
            break
    file.write_text(yaml.safe_dump(document, default_flow_style=False), encoding="utf-8")


async def read_service_account(environ: Mapping[str, str]) -> ServerAccess:
    """The access by a Pod's service account. Raises ConnectionConfigError, naming the missing variable or file."""
    try:
        return _access(Kubeconfig.of_service_account(environ, Path(SERVICE_ACCOUNT)))
    except KubeconfigError as error:
        raise ConnectionConfigError(f"in-cluster configuration: {error}") from error

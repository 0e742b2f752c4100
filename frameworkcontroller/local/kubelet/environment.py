"""A container's environment, and the ``$(NAME)`` references in it and in its command.

`expand` follows Kubernetes' rules: ``$(NAME)`` is replaced if NAME is known and kept otherwise; ``$$`` is an escaped
``$``. In the environment a reference can only name earlier entries.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from frameworkcontroller.local.kubelet.downward import DownwardApi
from frameworkcontroller.local.kubelet.podsources import ContainerConfigError, PodSources

_REFERENCE: Final = re.compile(r"\$(?:(\$)|\(([^)]*)\))")

Json = Mapping[str, Any]


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace the references in a text."""

    def replacement(found: re.Match[str]) -> str:
        return "$" if found[1] else values.get(found[2], found[0])

    return _REFERENCE.sub(replacement, text)


async def environment(
    container: Json, downward: DownwardApi, sources: PodSources, services: Mapping[str, str]
) -> dict[str, str]:
    """The environment from the container's ``envFrom`` and ``env``, after that of the ``services``.

    Raises ConfigError if a reference is missing, KubeError if that cannot be determined.
    """
    values = dict(services)
    for source in container.get("envFrom") or ():
        values |= await _env_from(source, sources)
    for item in container.get("env") or ():
        value = item.get("value")
        source = item.get("valueFrom")
        if value is None and source:
            value = await _value_from(source, container["name"], downward, sources)
            if value is None:
                continue
        else:
            value = expand(value or "", values)
        if "\0" in value:
            raise ContainerConfigError(f"environment variable {item['name']} has a NUL in its value")
        values[item["name"]] = value
    return values


async def _env_from(source: Json, sources: PodSources) -> dict[str, str]:
    prefix = source.get("prefix") or ""
    for field, kind in (("configMapRef", "configmap"), ("secretRef", "secret")):
        if source.get(field):
            entries = await sources.entries(kind, source[field]) or {}
            return {
                prefix + key: value.decode(errors="surrogateescape")
                for key, value in entries.items()
                # Invalid variables are skipped, as by kubelets.
                if b"\0" not in value and "=" not in key
            }
    return {}


async def _value_from(source: Json, container: str, downward: DownwardApi, sources: PodSources) -> str | None:
    if reference := source.get("fieldRef"):
        return downward.field(reference.get("fieldPath") or "")
    if reference := source.get("resourceFieldRef"):
        return downward.resource(reference, container)
    if reference := source.get("configMapKeyRef"):
        return await sources.entry("configmap", reference)
    if reference := source.get("secretKeyRef"):
        return await sources.entry("secret", reference)
    raise ContainerConfigError(f"valueFrom {', '.join(source)} is not supported")

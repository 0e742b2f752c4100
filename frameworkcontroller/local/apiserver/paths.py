"""Parses the API's URL paths."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote


@dataclass(frozen=True, slots=True)
class ResourcePath:
    """A path under ``/api/VERSION`` or ``/apis/GROUP/VERSION`` that names a resource."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    watch: bool = False
    """The deprecated watch path, ``/api/v1/watch/...``."""


def parse_resource_path(path: str) -> ResourcePath | None:
    """Parse a (still quoted) path; None if it names no resource."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[0] == "api":
        group, version, rest = "", parts[1] if len(parts) > 1 else "", parts[2:]
    elif parts[0] == "apis" and len(parts) > 2:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    watch = rest[:1] == ["watch"] and len(rest) > 1
    if watch:
        rest = rest[1:]
    if not version or not rest or not all(rest):
        return None
    namespace = ""
    # /namespaces/NAME/status belongs to the namespace itself; other paths below it are its content.
    if rest[0] == "namespaces" and len(rest) > 2 and not (len(rest) == 3 and rest[2] in {"status", "finalize"}):
        namespace, rest = rest[1], rest[2:]
    return ResourcePath(
        group=group,
        version=version,
        plural=rest[0],
        namespace=namespace,
        name=rest[1] if len(rest) > 1 else "",
        subresource="/".join(rest[2:]),
        watch=watch,
    )

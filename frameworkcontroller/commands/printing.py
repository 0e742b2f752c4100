"""API objects as JSON, as YAML, or by name, for other programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import decompress_roles
from frameworkcontroller.commands.session import Json, Session


def print_objects(session: Session, objects: Sequence[Json], output: str) -> None:
    """Print them as a List, or the name of each."""
    if output == "name":
        for body in objects:
            session.say(f"{names.PLURAL}.{names.GROUP}/{body['metadata']['name']}")
        return
    for body in objects:
        without_managed_fields(body)
        decompress(body)
    print_value(session, {"apiVersion": "v1", "kind": "List", "items": objects}, output)


def print_value(session: Session, value: Any, output: str) -> None:
    """Print it as ``json`` or ``yaml``."""
    session.say(encode(value, output).rstrip("\n"))


def encode(value: Any, output: str) -> str:
    """The text of it as ``json`` or ``yaml``."""
    if output == "json":
        return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n"
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=True, width=120)
    return text


def without_managed_fields(body: Json) -> Json:
    """The object, its ``managedFields`` taken out in place: they are for machines."""
    (body.get("metadata") or {}).pop("managedFields", None)
    return body


def decompress(body: Json) -> bool:
    """Put ``taskRoleStatuses`` in place of ``taskRoleStatusesCompressed``. Returns whether there was anything to do.

    Raises:
        StatusError: it cannot be decompressed.
    """
    attempt = (body.get("status") or {}).get("attemptStatus") or {}
    compressed = attempt.get("taskRoleStatusesCompressed")
    if not compressed:
        return False
    if attempt.get("taskRoleStatuses") is None:
        attempt["taskRoleStatuses"] = decompress_roles(compressed)
    del attempt["taskRoleStatusesCompressed"]
    return True

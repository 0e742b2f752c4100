"""API objects as JSON, as YAML, or by name, for other programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import StatusError, decompress_roles
from frameworkcontroller.commands import program
from frameworkcontroller.commands.humanize import harmless
from frameworkcontroller.commands.invocation import Json, Session


def print_objects(session: Session, objects: Sequence[Json], output: str) -> None:
    """Print them as a List, or the name of each."""
    if output == "name":
        for body in objects:
            session.say(f"{names.PLURAL}.{names.GROUP}/{body['metadata']['name']}")
        return
    for body in objects:
        without_managed_fields(body)
        try:
            decompress(body)
        except StatusError as error:
            # The others are none the worse for it.
            session.complain(f"{body['metadata']['name']}: {error}; shown as it is")
    print_value(session, {"apiVersion": "v1", "kind": "List", "items": objects}, output)


def print_value(session: Session, value: Any, output: str) -> None:
    """Print it as ``json`` or ``yaml``."""
    session.say(encode(value, output).rstrip("\n"))


def encode(value: Any, output: str) -> str:
    """The text of it as ``json`` or ``yaml``. What a terminal may act upon is escaped.

    Raises:
        CommandError: it is nested more deeply than can be written.
    """
    try:
        return _encode(value, output)
    except RecursionError:
        raise program.CommandError(f"an object is nested too deeply for -o {output}") from None


def _encode(value: Any, output: str) -> str:
    if output == "json":
        as_json = _dumped(value) + "\n"
        return as_json if _is_harmless(as_json) else "".join(map(_escaped, as_json))
    import yaml

    dump = partial(yaml.dump, value, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False, width=120)
    text: str = dump(allow_unicode=True)  # type: ignore[assignment] # without a stream it is text
    return text if _is_harmless(text) else str(dump(allow_unicode=False))


def _dumped(value: Any) -> str:
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    except orjson.JSONEncodeError:
        # It reads objects that are nested more deeply than those that it writes.
        return json.dumps(value, indent=2, ensure_ascii=False)


def _is_harmless(text: str) -> bool:
    return harmless(text) == text


def _escaped(char: str) -> str:
    """The character in JSON, where what does not print is within strings only."""
    return char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1]


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

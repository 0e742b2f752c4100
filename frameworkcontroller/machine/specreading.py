"""The parsed spec of a Framework in the cache. A large one is parsed in a thread, before its pass."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final

import orjson

from frameworkcontroller.api.objects import FrameworkRecord
from frameworkcontroller.api.spec import ENDING_FIELDS, FrameworkSpec, SpecError, parse_spec

LARGE_SPEC_BYTES: Final = 64 << 10
"""Size from which a spec is to be parsed in a thread."""


@dataclass(frozen=True, slots=True)
class ReadSpec:
    """The spec of a record, None if it is invalid. ``digest``: of the text, b"" unless that is large.

    ``error``, ``ends``: of an invalid spec, the reason and the values of ``ENDING_FIELDS``.
    """

    spec: FrameworkSpec | None
    digest: bytes
    error: str = ""
    ends: Any = None

    def is_of(self, record: FrameworkRecord) -> bool:
        """Whether it is large, and the spec of this record."""
        return bool(self.digest) and self.digest == _digest_of(record)


def read_spec(record: FrameworkRecord) -> ReadSpec:
    """Parse the spec of a record. One of 1.4 MB takes tens of milliseconds, or with many TaskRoles a quarter second."""
    digest, given = _digest_of(record), orjson.loads(record.spec_json)
    try:
        if record.spec_problem:
            raise SpecError(record.spec_problem)
        return ReadSpec(parse_spec(given, framework=record.name), digest)
    except SpecError as error:
        ends = {field: given.get(field) for field in ENDING_FIELDS} if isinstance(given, dict) else None
        return ReadSpec(None, digest, str(error), ends)


def _digest_of(record: FrameworkRecord) -> bytes:
    if len(record.spec_json) <= LARGE_SPEC_BYTES:
        return b""
    digest = hashlib.blake2b(record.spec_json, digest_size=16)
    digest.update(record.spec_problem.encode())
    return digest.digest()

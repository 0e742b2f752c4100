"""Decodes foreign JSON objects. The errors are ProblemErrors, with paths below the object.

Absent and null both mean that there is no value.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import StrEnum
from types import NoneType
from typing import Annotated, Any, Final, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from frameworkcontroller.api.problems import Problem, ProblemError
from frameworkcontroller.api.timestamps import parse_time

T = TypeVar("T")
D = TypeVar("D")

Decode = Callable[[Any], Any]
"""Decodes a JSON value that is not null. Raises ProblemError."""


# --- values ---


def _exactly(kind: type[T], rule: str) -> Callable[[Any], T]:
    def decode(value: Any) -> T:
        if type(value) is not kind:
            raise ProblemError(Problem((), rule, value))
        return value

    return decode


_text = _exactly(str, "must be text")
_number = _exactly(int, "must be a whole number")


def _figure(value: Any) -> float:
    if type(value) not in (int, float):
        raise ProblemError(Problem((), "must be a number", value))
    return float(value)


_flag = _exactly(bool, "must be true or false")
_object = _exactly(dict, "must be an object")
_list = _exactly(list, "must be a list")


def _time(value: Any) -> int:
    try:
        return parse_time(value)
    except (TypeError, ValueError):
        raise ProblemError(Problem((), "must be a time of RFC 3339 from year 1 to 9999", value)) from None


def _choice(choices: type[StrEnum]) -> Decode:
    def decode(value: Any) -> StrEnum:
        try:
            return choices(value)
        except ValueError:
            raise ProblemError(Problem((), f"must be one of {', '.join(choices)}", value)) from None

    return decode


def _each(decode: Decode, sequence: Callable[[list[Any]], Any]) -> Decode:
    def decode_all(value: Any) -> Any:
        values, items = _list(value), []
        try:
            for item in values:
                items.append(decode(item))  # noqa: PERF401 - an error needs the position
        except ProblemError as error:
            raise error.below(len(items)) from None
        return sequence(items)

    return decode_all


Time = Annotated[int, _time]
"""Seconds since the epoch, in JSON a text."""

Interned = Annotated[str, lambda value: sys.intern(_text(value))]
"""A text that many objects share."""


# --- single fields ---


def _optional(decode: Callable[[Any], T], default: D) -> Callable[[Mapping[str, Any], str], T | D]:
    def read(body: Mapping[str, Any], key: str) -> T | D:
        value = body.get(key)
        if value is None:
            return default
        try:
            return decode(value)
        except ProblemError as error:
            raise error.below(key) from None

    return read


text = _optional(_text, "")
number = _optional(_number, 0)
maybe_number = _optional(_number, None)
maybe_time = _optional(_time, None)
maybe_object = _optional(_object, None)


# --- dataclasses ---

_PLAIN: Final[dict[Any, Decode]] = {str: _text, int: _number, float: _figure, bool: _flag}


def _each_value(decode: Decode) -> Decode:
    def decode_all(value: Any) -> dict[str, Any]:
        decoded = {}
        for key, item in _object(value).items():
            try:
                decoded[key] = decode(item)
            except ProblemError as error:
                raise error.below(key) from None
        return decoded

    return decode_all


def added(meaning: str, **options: Any) -> Any:
    """A field of a dataclass that the statuses of the original, and older CRDs, do not have.

    It has a default, and is absent from JSON while it has that. ``meaning``: its text in docs/reference.md, "" for a
    field with a text elsewhere. ``options``: those of ``dataclasses.field``.
    """
    return field(metadata={"meaning": meaning}, **options)


class AddedField(NamedTuple):
    """A field made by `added`. ``hint``: its type, without None."""

    name: str
    key: str
    hint: Any
    meaning: str
    default: Any


@dataclass(frozen=True)
class Schema:
    """Decodes JSON objects into dataclasses, by their annotations; ``Annotated[T, decode]`` by ``decode``."""

    keys: Mapping[str, str]
    """The keys of fields, where they are not the name in camelCase."""
    needed: Collection[str]
    """Fields that have a default in the dataclass, but not in JSON."""
    prepare: Mapping[type, Callable[[dict[str, Any]], dict[str, Any]]]
    """By dataclass, a function that adapts its JSON object."""

    def decoder(self, kind: type[T]) -> Callable[[Any], T]:
        """Return the decoder into the dataclass ``kind``."""
        prepare: Callable[[Any], Any] = self.prepare.get(kind, _object)
        hints = get_type_hints(kind, include_extras=True)
        steps = []
        for one in fields(kind):  # type: ignore[arg-type]
            if one.init:
                has_default = one.default is not MISSING or one.default_factory is not MISSING
                needed = one.name in self.needed or not has_default
                steps.append((one.name, self._key(one.name), self._decode(hints[one.name]), needed))

        def decode(value: Any) -> T:
            body = prepare(_object(value))
            decoded = {}
            key = ""
            try:
                for name, key, decode_field, needed in steps:
                    item = body.get(key)
                    if item is not None:
                        decoded[name] = decode_field(item)
                    elif needed:
                        raise ProblemError(Problem((), "is required"))
            except ProblemError as error:
                raise error.below(key) from None
            return kind(**decoded)

        return decode

    def added(self, kind: type) -> tuple[AddedField, ...]:
        """The fields of the dataclass that `added` has made, in their order."""
        hints = get_type_hints(kind, include_extras=True)
        return tuple(
            AddedField(
                one.name,
                self._key(one.name),
                _without_none(hints[one.name]),
                one.metadata["meaning"],
                one.default if one.default_factory is MISSING else one.default_factory(),
            )
            for one in fields(kind)
            if "meaning" in one.metadata
        )

    def _key(self, name: str) -> str:
        head, *rest = name.split("_")
        return self.keys.get(name) or head + "".join(map(str.capitalize, rest))

    def _decode(self, hint: Any) -> Decode:
        origin, args = get_origin(hint), get_args(hint)
        if origin is Annotated:
            decode: Decode = args[1]
            return decode
        if NoneType in args:
            return self._decode(_without_none(hint))
        if origin in {list, tuple}:
            return _each(self._decode(args[0]), origin)
        if origin is dict:
            return _object if args[1] is Any else _each_value(self._decode(args[1]))
        if is_dataclass(hint):
            return self.decoder(hint)  # type: ignore[arg-type]
        return _PLAIN.get(hint) or _choice(hint)


def _without_none(hint: Any) -> Any:
    args = get_args(hint)
    return next(arg for arg in args if arg is not NoneType) if NoneType in args else hint

"""Validates custom resources by their schema, with the real API server's texts.

A schema is compiled to one closure per node. Valid values cost a few comparisons; texts and paths are built only for
faults.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import re2

from frameworkcontroller.local.apiserver import formats, status_causes
from frameworkcontroller.local.apiserver.field_path import FieldPath, show, steps
from frameworkcontroller.local.apiserver.patches import same
from frameworkcontroller.local.apiserver.status_causes import Cause


@dataclass(slots=True)
class Fault:
    """A cause with its position (which exists even if the cause names no field)."""

    where: FieldPath
    cause: Cause


Validator = Callable[[Any, FieldPath, list[Fault]], None]
"""Appends the faults of a value at a path to a list."""

_NOWHERE = "<nil>"
"""The real server's field name for a fault without a field."""


def compile_validator(schema: Mapping[str, Any], *, resource: bool = False) -> Validator:
    """Compile the validator of ``schema``; ``resource`` as in pruning."""
    resource = resource or bool(schema.get("x-kubernetes-embedded-resource"))
    checks = [check for check in _checks(schema, resource) if check is not None]
    type_names, accepts = _type_check(schema)
    nullable = bool(schema.get("nullable"))
    number_format = schema.get("format", "") if schema.get("type") in ("integer", "number") else ""

    def validate(value: Any, where: FieldPath, faults: list[Fault]) -> None:
        if value is None:
            if nullable:
                return
            if type_names:
                faults.append(_wrong_type(where, value, type_names, ""))
            return
        if accepts is not None and not accepts(value):
            faults.append(_wrong_type(where, value, type_names, number_format))
        for check in checks:
            check(value, where, faults)

    return validate


def _checks(schema: Mapping[str, Any], resource: bool) -> list[Validator | None]:
    return [
        _enum_check(schema) if schema.get("type") != "string" else None,
        _string_check(schema),
        _number_check(schema),
        _list_check(schema),
        _object_check(schema, resource),
        _combination_check(schema),
        _enum_check(schema) if schema.get("type") == "string" else None,
    ]


def _is_integer(value: Any) -> bool:
    return type(value) is int or (type(value) is float and value.is_integer())


def _is_number(value: Any) -> bool:
    return type(value) is int or type(value) is float


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "string": lambda value: type(value) is str,
    "integer": _is_integer,
    "number": _is_number,
    "boolean": lambda value: type(value) is bool,
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, list),
}


def _type_check(schema: Mapping[str, Any]) -> tuple[str, Callable[[Any], bool] | None]:
    """The type's name in messages, and its check; None if any type is allowed."""
    if schema.get("x-kubernetes-int-or-string"):
        return "integer,string", lambda value: type(value) is str or _is_integer(value)
    declared = schema.get("type") or ""
    if declared == "integer" and schema.get("format") in formats.INTEGER_BITS:
        # A float that is not an integer of the width has its own message.
        return (
            declared,
            lambda value: type(value) is int or (type(value) is float and value.is_integer() and abs(value) < 2**63),
        )
    return declared, _TYPES.get(declared)


def _wrong_type(where: FieldPath, value: Any, wanted: str, number_format: str) -> Fault:
    path = show(where)
    found = _type_name(value)
    if number_format in formats.INTEGER_BITS and type(value) is float:
        wanted, found = number_format, "float64"
    return Fault(where, status_causes.type_invalid(path, found, f'{path} in body must be of type {wanted}: "{found}"'))


def _type_name(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _enum_check(schema: Mapping[str, Any]) -> Validator | None:
    values = schema.get("enum")
    if not values:
        return None
    names = [value if isinstance(value, str) else orjson.dumps(value).decode() for value in values]
    strings = frozenset(value for value in values if isinstance(value, str))

    def check(value: Any, where: FieldPath, faults: list[Fault]) -> None:
        if isinstance(value, str):
            allowed = value in strings
        else:
            allowed = any(value == other and type(value) is type(other) for other in values)
        if not allowed:
            faults.append(Fault(where, status_causes.not_supported(show(where), value, names)))

    return check


def _string_check(schema: Mapping[str, Any]) -> Validator | None:
    longest, shortest, pattern = schema.get("maxLength"), schema.get("minLength"), schema.get("pattern")
    format_ = schema.get("format", "") if schema.get("type") in ("string", None) else ""
    if longest is None and shortest is None and not pattern and not format_:
        return None
    matches = compile_pattern(pattern).search if pattern else None

    def check(value: Any, where: FieldPath, faults: list[Fault]) -> None:
        if not isinstance(value, str):
            return
        if longest is not None and len(value) > longest:
            faults.append(Fault(where, status_causes.too_long(show(where), longest)))
        elif shortest is not None and len(value) < shortest:
            detail = f"{show(where)} in body should be at least {shortest} chars long"
            faults.append(Fault(where, status_causes.invalid(show(where), value, detail)))
        elif matches is not None and matches(value) is None:
            detail = f"{show(where)} in body should match '{pattern}'"
            faults.append(Fault(where, status_causes.invalid(show(where), value, detail)))
        if format_ and not formats.is_string_of(value, format_):
            detail = f"{show(where)} in body must be of type {format_}: {status_causes.quote(value)}"
            faults.append(Fault(where, status_causes.type_invalid(show(where), value, detail)))

    return check


def compile_pattern(pattern: str) -> Any:
    """Compile ``pattern`` with the real server's engine. Raises ``re2.error`` if it is invalid."""
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)


def _number_check(schema: Mapping[str, Any]) -> Validator | None:
    most, least, step = schema.get("maximum"), schema.get("minimum"), schema.get("multipleOf")
    format_ = schema.get("format", "") if schema.get("type") == "integer" else ""
    if most is None and least is None and step is None and not format_:
        return None
    below, above = bool(schema.get("exclusiveMaximum")), bool(schema.get("exclusiveMinimum"))

    def check(value: Any, where: FieldPath, faults: list[Fault]) -> None:
        if not _is_number(value):
            return
        if format_ and not (_is_integer(value) and formats.fits(int(value), format_)):
            detail = f"Checked value must be of type integer with format {format_} in {show(where)}"
            faults.append(Fault(where, status_causes.invalid(_NOWHERE, "", detail)))
        if step is not None and not _is_multiple(value, step):
            detail = f"{show(where)} in body should be a multiple of {step:g}"
            faults.append(Fault(where, status_causes.invalid(show(where), value, detail)))
        if most is not None and (value >= most if below else value > most):
            relation = "less than" if below else "less than or equal to"
            detail = f"{show(where)} in body should be {relation} {most}"
            faults.append(Fault(where, status_causes.invalid(show(where), value, detail)))
        if least is not None and (value <= least if above else value < least):
            relation = "greater than" if above else "greater than or equal to"
            detail = f"{show(where)} in body should be {relation} {least}"
            faults.append(Fault(where, status_causes.invalid(show(where), value, detail)))

    return check


def _is_multiple(value: float, step: float) -> bool:
    if isinstance(value, int) and isinstance(step, int):
        return value % step == 0
    return math.isclose(value / step, round(value / step), rel_tol=0, abs_tol=1e-9)


def _list_check(schema: Mapping[str, Any]) -> Validator | None:
    items = schema.get("items")
    if not isinstance(items, Mapping) and schema.get("type") != "array":
        return None
    most, fewest = schema.get("maxItems"), schema.get("minItems")
    validate_item = compile_validator(items) if isinstance(items, Mapping) else None

    def check(value: Any, where: FieldPath, faults: list[Fault]) -> None:
        if not isinstance(value, list):
            return
        if most is not None and len(value) > most:
            faults.append(Fault(where, status_causes.too_many(show(where), len(value), most)))
        if fewest is not None and len(value) < fewest:
            detail = f"{show(where)} in body should have at least {fewest} items"
            faults.append(Fault(where, status_causes.invalid(show(where), len(value), detail)))
        if validate_item is not None:
            for index, item in enumerate(value):
                validate_item(item, (where, index), faults)

    return check


def _object_check(schema: Mapping[str, Any], resource: bool) -> Validator | None:
    properties = {name: compile_validator(child) for name, child in (schema.get("properties") or {}).items()}
    additional = schema.get("additionalProperties")
    validate_member = compile_validator(additional) if isinstance(additional, Mapping) else None
    required = list(schema.get("required") or ())
    if schema.get("x-kubernetes-embedded-resource"):
        required += [name for name in ("apiVersion", "kind") if name not in required]
    most, fewest = schema.get("maxProperties"), schema.get("minProperties")
    if not properties and validate_member is None and not required and most is None and fewest is None:
        return None
    if resource:
        # Their types are checked by decoding; here they may only be constrained further.
        for name in ("apiVersion", "kind"):
            properties.setdefault(name, _anything)

    def check(value: Any, where: FieldPath, faults: list[Fault]) -> None:
        if not isinstance(value, Mapping):
            return
        if most is not None and len(value) > most:
            faults.append(Fault(where, status_causes.too_many(show(where), len(value), most)))
        if fewest is not None and len(value) < fewest:
            detail = f"{show(where)} in body should have at least {fewest} properties"
            faults.append(Fault(where, status_causes.invalid(show(where), len(value), detail)))
        missing = [name for name in required if name not in value]
        faults.extend(Fault((where, name), status_causes.required(show((where, name)))) for name in missing)
        for name, member in value.items():
            validate = properties.get(name, validate_member)
            if validate is not None:
                validate(member, (where, name), faults)

    return check


def _anything(value: Any, where: FieldPath, faults: list[Fault]) -> None:
    del value, where, faults


def _combination_check(schema: Mapping[str, Any]) -> Validator | None:
    """``allOf``, ``anyOf``, ``oneOf`` and ``not``."""
    every = [compile_validator(part) for part in schema.get("allOf") or ()]
    some = [compile_validator(part) for part in schema.get("anyOf") or ()]
    one = [compile_validator(part) for part in schema.get("oneOf") or ()]
    none = compile_validator(schema["not"]) if schema.get("not") is not None else None
    if schema.get("x-kubernetes-int-or-string"):
        # An anyOf often spells out "integer or string"; the type check has already reported that.
        some = []
    if not every and not some and not one and none is None:
        return None

    def check(value: Any, where: FieldPath, faults: list[Fault]) -> None:
        def complain(detail: str) -> None:
            faults.append(
                Fault(where, status_causes.invalid(_NOWHERE, "", f"{status_causes.quote(show(where))} {detail}"))
            )

        if some:
            outcomes = [_outcome(validate, value, where) for validate in some]
            if all(outcomes):
                complain("must validate at least one schema (anyOf)")
                faults.extend(_fewest(outcomes))
        if one:
            outcomes = [_outcome(validate, value, where) for validate in one]
            valid = sum(not outcome for outcome in outcomes)
            if valid == 0:
                complain("must validate one and only one schema (oneOf). Found none valid")
                faults.extend(_fewest(outcomes))
            elif valid > 1:
                complain(f"must validate one and only one schema (oneOf). Found {valid} valid alternatives")
        if every:
            outcomes = [_outcome(validate, value, where) for validate in every]
            failed = [outcome for outcome in outcomes if outcome]
            for outcome in failed:
                faults.extend(outcome)
            if failed:
                complain(
                    "must validate all the schemas (allOf)" + (". None validated" if len(failed) == len(every) else "")
                )
        if none is not None and not _outcome(none, value, where):
            complain("must not validate the schema (not)")

    return check


def _outcome(validate: Validator, value: Any, where: FieldPath) -> list[Fault]:
    faults: list[Fault] = []
    validate(value, where, faults)
    return faults


def _fewest(outcomes: list[list[Fault]]) -> list[Fault]:
    """The alternative with the fewest faults, which is most likely the intended one."""
    return min(outcomes, key=lambda outcome: len(outcome))  # noqa: PLW0108 -- mypy does not take the bare function


def compile_list_sets(schema: Mapping[str, Any]) -> Validator | None:
    """Compile the check for duplicates in lists declared as sets or maps; None without such lists."""
    items = schema.get("items")
    if isinstance(items, Mapping):
        inner = compile_list_sets(items)
        list_type = schema.get("x-kubernetes-list-type")
        keys = tuple(schema.get("x-kubernetes-list-map-keys") or ()) if list_type == "map" else ()
        if list_type not in ("set", "map"):
            return None if inner is None else _each_item(inner)
        return _unique_items(keys, inner)
    members = {name: compile_list_sets(child) for name, child in (schema.get("properties") or {}).items()}
    nested = [(name, check) for name, check in members.items() if check is not None]
    additional = schema.get("additionalProperties")
    every = compile_list_sets(additional) if isinstance(additional, Mapping) else None
    if not nested and every is None:
        return None

    def check(value: Any, where: FieldPath, faults: list[Fault]) -> None:
        if not isinstance(value, Mapping):
            return
        for name, check_member in nested:
            if name in value:
                check_member(value[name], (where, name), faults)
        if every is not None:
            for name, member in value.items():
                every(member, (where, name), faults)

    return check


def _each_item(inner: Validator) -> Validator:
    def check(value: Any, where: FieldPath, faults: list[Fault]) -> None:
        if isinstance(value, list):
            for index, item in enumerate(value):
                inner(item, (where, index), faults)

    return check


def _unique_items(keys: tuple[str, ...], inner: Validator | None) -> Validator:
    def check(value: Any, where: FieldPath, faults: list[Fault]) -> None:
        if not isinstance(value, list):
            return
        seen = set()
        for index, item in enumerate(value):
            place = (where, index)
            if item is None:
                continue
            if keys and not isinstance(item, Mapping):
                detail = "must be an object for an array of list-type map"
                faults.append(Fault(place, status_causes.invalid(show(place), item, detail)))
                continue
            identity = {key: item[key] for key in keys if key in item} if keys else item
            text = orjson.dumps(identity, option=orjson.OPT_SORT_KEYS)
            if text in seen:
                faults.append(Fault(place, status_causes.duplicate(show(place), identity)))
            seen.add(text)
            if inner is not None:
                inner(item, place, faults)

    return check


def unchanged(fault: Fault, new: Any, old: Any) -> bool:
    """Whether a fault is in a part that ``old`` already had: an update need not fix it."""
    for step in steps(fault.where):
        try:
            new, old = new[step], old[step]
        except (KeyError, IndexError, TypeError):
            # Missing before and now: compare the containing value.
            break
    return same(new, old)

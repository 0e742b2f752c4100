"""Parses label and field selectors into predicates over records, with the real server's error texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from frameworkcontroller.local.apiserver import api_errors
from frameworkcontroller.local.apiserver.object_records import ObjectRecord

Predicate = Callable[[ObjectRecord], bool]

_TOKEN = re.compile(r"\s*(==|!=|[=!<>(),]|[^\s=!<>(),]+)")
_WORD = re.compile(r"[^\s=!<>(),]+\Z")
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]\Z")
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?\Z")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
_INTEGER = re.compile(r"[+-]?[0-9]+\Z")

_NAME_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


class SelectorError(ValueError):
    """The selector is invalid."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label."""

    key: str
    operator: str
    """``in``, ``notin``, ``exists``, ``!``, ``gt``, ``lt``."""
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels match. Only ``in``, ``exists`` and comparisons require the label."""
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value is not None and value in self.values
            case "notin":
                return value is None or value not in self.values
            case "exists":
                return value is not None
            case "!":
                return value is None
        if value is None or not _INTEGER.match(value):
            return False
        (bound,) = self.values
        return int(value) > int(bound) if self.operator == "gt" else int(value) < int(bound)


def parse_labels(text: str) -> list[Requirement]:
    """Parse a label selector such as ``a=b,c in (d, e),!f``. Raises SelectorError."""
    parser = _Parser(text)
    requirements: list[Requirement] = []
    if parser.peek() == "":
        return requirements
    while True:
        found = parser.peek()
        if found != "!" and not _WORD.match(found):
            raise SelectorError(f"found '{found}', expected: !, identifier, or 'end of string'")
        try:
            requirements.append(parser.requirement())
        except SelectorError as error:
            raise SelectorError(f"unable to parse requirement: {error}") from None
        found = parser.advance()
        if found == "":
            return requirements
        if found != ",":
            raise SelectorError(f"found '{found}', expected: ',' or 'end of string'")
        follower = parser.peek()
        if follower != "!" and not _WORD.match(follower):
            raise SelectorError(f"found '{follower}', expected: identifier after ','")


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _TOKEN.findall(text)
        self._at = 0

    def peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def advance(self) -> str:
        found = self.peek()
        self._at += 1
        return found

    def requirement(self) -> Requirement:
        absent = self.peek() == "!"
        if absent:
            self.advance()
        key = self.advance()
        if not _WORD.match(key):
            raise SelectorError(f"found '{key}', expected: identifier")
        _check_key(key)
        if absent:
            return Requirement(key, "!")
        operator = self.peek()
        if operator in {"", ","}:
            return Requirement(key, "exists")
        self.advance()
        match operator:
            case "=" | "==":
                return Requirement(key, "in", self._values(key, [self._value()]))
            case "!=":
                return Requirement(key, "notin", self._values(key, [self._value()]))
            case "in" | "notin":
                return Requirement(key, operator, self._values(key, self._list()))
            case "<" | ">":
                value = self._value()
                if not _INTEGER.match(value):
                    raise SelectorError("for 'Gt', 'Lt' operators, the value must be an integer")
                return Requirement(key, "gt" if operator == ">" else "lt", frozenset([value]))
        raise SelectorError(f"found '{operator}', expected: '=', '!=', '==', 'in', notin'")

    @staticmethod
    def _values(key: str, values: Collection[str]) -> frozenset[str]:
        for value in values:
            if len(value) > 63:
                fault = "must be no more than 63 characters"
            elif not _VALUE.match(value):
                fault = _VALUE_RULE
            else:
                continue
            raise SelectorError(f'invalid label value: "{value}": at key: "{key}": {fault}')
        return frozenset(values)

    def _value(self) -> str:
        found = self.peek()
        if found in {"", ","}:
            return ""
        self.advance()
        if not _WORD.match(found):
            raise SelectorError(f"found '{found}', expected: identifier")
        return found

    def _list(self) -> list[str]:
        found = self.advance()
        if found != "(":
            raise SelectorError(f"found '{found}' expected: '('")
        if self.peek() == ")":
            self.advance()
            return [""]
        values: list[str] = []
        while True:
            values.append(self._value() if self.peek() != ")" else "")
            found = self.advance()
            if found == ")":
                return values
            if found != ",":
                raise SelectorError(f"found '{found}', expected: ',' or ')'")


def _check_key(key: str) -> None:
    prefix, slash, name = key.rpartition("/")
    if slash and ("/" in prefix or not name or not prefix):
        raise SelectorError(
            f"invalid label key \"{key}\": a qualified name {_NAME_RULE} with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')"
        )
    if slash and (len(prefix) > 253 or not _SUBDOMAIN.match(prefix)):
        raise SelectorError(f'invalid label key "{key}": prefix part must be a lowercase RFC 1123 subdomain')
    if len(name) > 63:
        raise SelectorError(f'invalid label key "{key}": name part must be no more than 63 characters')
    if not _NAME.match(name):
        raise SelectorError(f'invalid label key "{key}": name part {_NAME_RULE}')


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One condition of a field selector."""

    field: str
    equal: bool
    value: str


def parse_fields(text: str) -> list[FieldTerm]:
    r"""Parse a field selector such as ``metadata.name=a,status.phase!=Running``. Raises SelectorError.

    Values may contain the escapes ``\,``, ``\=`` and ``\\``.
    """
    terms: list[FieldTerm] = []
    for part in re.split(r"(?<!\\),", text):
        if not part:
            continue
        found = re.match(r"((?:[^\\=!]|\\.|!(?!=))*)(!=|==|=)(.*)\Z", part, re.DOTALL)
        if found is None:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{part}'")
        value = re.sub(r"\\([\\,=])", r"\1", found[3])
        terms.append(FieldTerm(found[1], found[2] != "!=", value))
    return terms


def predicate(label_selector: str, field_selector: str, fields: Collection[str], *, standard: bool) -> Predicate | None:
    """The predicate of the selectors, None if they select everything. Raises a 400 if they are invalid.

    ``fields`` are the field labels of the type besides ``metadata.name`` and ``metadata.namespace``; ``standard``: name
    those two in the error for an unknown one.
    """
    try:
        requirements = parse_labels(label_selector)
        terms = parse_fields(field_selector)
    except SelectorError as error:
        raise api_errors.bad_request(str(error)) from None
    for term in terms:
        if term.field not in {"metadata.name", "metadata.namespace"} and term.field not in fields:
            raise api_errors.bad_request(
                f'"{term.field}" is not a known field selector: only "metadata.name", "metadata.namespace"'
                if standard
                else f"field label not supported: {term.field}"
            )
    if not requirements and not terms:
        return None

    def matches(record: ObjectRecord) -> bool:
        labels = record.labels
        return all(requirement.matches(labels) for requirement in requirements) and all(
            (field_value(record, term.field) == term.value) is term.equal for term in terms
        )

    return matches


def field_value(record: ObjectRecord, field: str) -> str:
    """The value for a field selector; empty if the object lacks the field."""
    if field == "metadata.name":
        return record.name
    if field == "metadata.namespace":
        return record.namespace
    return record.fields.get(field, "")

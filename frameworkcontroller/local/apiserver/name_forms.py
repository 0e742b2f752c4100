"""The syntax of names in the API: DNS labels and subdomains, label keys and values.

Each check returns complaints with the real API server's texts; none if the name is valid.
"""

from __future__ import annotations

import re
from typing import Final

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_DNS_1035: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_NAME_PART: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE: Final = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_CONFIG_KEY: Final = "[-._a-zA-Z0-9]+"
_ENV_NAME: Final = "[-._a-zA-Z][-._a-zA-Z0-9]*"

_label = re.compile(_LABEL, re.ASCII)
_subdomain = re.compile(_SUBDOMAIN, re.ASCII)
_dns_1035 = re.compile(_DNS_1035, re.ASCII)
_name_part = re.compile(_NAME_PART, re.ASCII)
_label_value = re.compile(_LABEL_VALUE, re.ASCII)
_config_key = re.compile(_CONFIG_KEY, re.ASCII)
_env_name = re.compile(_ENV_NAME, re.ASCII)

_LABEL_TEXT: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    f"an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_DNS_1035_TEXT: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    f"'{_DNS_1035}')"
)
_NAME_FORM: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_NAME_PART}')"
)
_QUALIFIED_TEXT: Final = (
    f"a qualified name {_NAME_FORM} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
)
_LABEL_VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'{_LABEL_VALUE}')"
)
_CONFIG_KEY_TEXT: Final = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    f"'key-name', regex used for validation is '{_CONFIG_KEY}')"
)
_ENV_NAME_TEXT: Final = (
    "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and must not "
    "start with a digit (e.g. 'my.env-name',  or 'MY_ENV.NAME',  or 'MyEnvName1', regex used for validation is "
    f"'{_ENV_NAME}')"
)


def label(text: str) -> list[str]:
    """A DNS label (RFC 1123): names of containers, volumes and namespaces."""
    return _of(text, 63, _label, _LABEL_TEXT)


def subdomain(text: str) -> list[str]:
    """A DNS subdomain (RFC 1123): names of most objects."""
    return _of(text, 253, _subdomain, _SUBDOMAIN_TEXT)


def dns_1035_label(text: str) -> list[str]:
    """A DNS label that starts with a letter: names of Services, and the names in a CRD."""
    return _of(text, 63, _dns_1035, _DNS_1035_TEXT)


def path_segment(text: str) -> list[str]:
    """A URL path segment: names of RBAC objects."""
    if text in (".", ".."):
        return [f"may not be '{text}'"]
    return [f"may not contain '{part}'" for part in ("/", "%") if part in text]


def qualified(text: str) -> list[str]:
    """A label key: a name with an optional prefix that is a subdomain."""
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        return [_QUALIFIED_TEXT]
    complaints = []
    if slash:
        complaints = (
            ["prefix part must be non-empty"] if not prefix else [f"prefix part {c}" for c in subdomain(prefix)]
        )
    if not name:
        complaints.append("name part must be non-empty")
    elif len(name) > 63:
        complaints.append(f"name part {_too_long(63)}")
    if not _name_part.fullmatch(name):
        complaints.append(f"name part {_NAME_FORM}")
    return complaints


def label_value(text: str) -> list[str]:
    """A label's value."""
    return _of(text, 63, _label_value, _LABEL_VALUE_TEXT)


def config_key(text: str) -> list[str]:
    """A key in a ConfigMap's or Secret's data, which may become a file name."""
    if text in (".", ".."):
        return [f"must not be '{text}'"]
    if text.startswith(".."):
        return ["must not start with '..'"]
    return _of(text, 253, _config_key, _CONFIG_KEY_TEXT)


def env_name(text: str) -> list[str]:
    """The name of an environment variable."""
    return [] if _env_name.fullmatch(text) else [_ENV_NAME_TEXT]


def port_name(text: str) -> list[str]:
    """The name of a container port (an IANA service name)."""
    complaints = []
    if len(text) > 15:
        complaints.append(_too_long(15))
    if not re.fullmatch("[-a-z0-9]+", text):
        complaints.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", text):
        complaints.append("must contain at least one letter (a-z)")
    if "--" in text:
        complaints.append("must not contain consecutive hyphens")
    if text.startswith("-") or text.endswith("-"):
        complaints.append("must not begin or end with a hyphen")
    return complaints


def _of(text: str, limit: int, form: re.Pattern[str], complaint: str) -> list[str]:
    complaints = []
    if len(text) > limit:
        complaints.append(_too_long(limit))
    if not form.fullmatch(text):
        complaints.append(complaint)
    return complaints


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} characters"

"""docs/moving.md translates every field of the other controllers' resources, and no others."""

import re
from typing import Final

import pytest

from tests.support.examples import BEFORE, ROOT
from tests.support.othercontrollers import crd_of, fields_in, fields_of, fields_of_crd, manifest

PAGE: Final = ROOT / "docs/moving.md"
NAMES: Final = sorted(path.stem for path in BEFORE.glob("*.yaml"))


def section(heading: str) -> str:
    return PAGE.read_text().partition(f"# {heading}\n")[2].partition("\n#")[0]


def table(name: str) -> list[str]:
    """The rows of the table after the mark ``<!-- fields: name -->``."""
    text = PAGE.read_text().partition(f"<!-- fields: {name} -->\n")[2].partition("\n\n")[0]
    lines = text.splitlines()[2:]
    assert lines, name
    return lines


def told(name: str) -> list[str]:
    """The fields in the first column."""
    return [field for line in table(name) for field in re.findall(r"`([^`]+)`", line.split("|")[1])]


def is_at_or_below(field: str, above: str) -> bool:
    return field == above or field.startswith(above + ".")


def test_every_manifest_has_a_table() -> None:
    assert sorted(re.findall(r"<!-- fields: (\w+) -->", PAGE.read_text())) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_names_no_field_twice(name: str) -> None:
    fields = told(name)
    doubled = [(one, two) for one in fields for two in fields if one is not two and is_at_or_below(two, one)]
    assert doubled == []


@pytest.mark.parametrize("name", NAMES)
def test_names_every_field_of_the_schema(name: str) -> None:
    fields = told(name)
    assert [field for field in fields_of(name) if not any(is_at_or_below(field, one) for one in fields)] == []


@pytest.mark.parametrize("name", NAMES)
def test_names_no_field_that_is_not_in_the_schema(name: str) -> None:
    there = fields_of(name)
    assert [one for one in told(name) if not any(is_at_or_below(field, one) for field in there)] == []


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("jobset", "failurePolicy.rules.action"),
        ("jobset", "failurePolicy.restartStrategy"),
        ("jobset", "successPolicy.operator"),
        ("leaderworkerset", "leaderWorkerTemplate.restartPolicy"),
        ("leaderworkerset", "startupPolicy"),
    ],
)
def test_names_every_value(name: str, field: str) -> None:
    (line,) = (line for line in table(name) if f"`{field}`" in line)
    for anchor in re.findall(r"\(#([a-z-]+)\)", line):
        (heading,) = re.findall(rf"^### ({anchor.replace('-', ' ')})$", PAGE.read_text(), re.MULTILINE | re.IGNORECASE)
        line += section(heading)
    assert [value for value in fields_of(name)[field] if f"`{value}`" not in line] == []


def test_events_of_volcano_exist() -> None:
    events = re.findall(r"^\| `(\w+)`", section("Policies of Volcano"), re.MULTILINE)
    assert events
    assert set(events) <= set(fields_of("volcanojob")["policies.event"])


@pytest.mark.parametrize("name", [name for name in NAMES if name != "job"])
def test_knows_the_fields_of_the_schema(name: str) -> None:
    crd = crd_of(manifest(name))
    if crd is None:
        pytest.skip(f"no CustomResourceDefinition of {name} in ../shared/crds or OTHER_CRDS")
    assert fields_of(name) == fields_of_crd(crd)


@pytest.mark.parametrize("name", NAMES)
def test_names_every_field_of_the_manifest(name: str) -> None:
    fields = told(name)
    used = fields_in(manifest(name)["spec"])
    assert [field for field in used if not any(is_at_or_below(field, one) for one in fields)] == []

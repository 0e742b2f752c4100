"""``kubectl framework nodes``, by a folder of records."""

from pathlib import Path

import orjson
import pytest
import yaml

from frameworkcontroller.commands.program import CommandError
from tests.support.archives import EPOCH, framework_record, task_status
from tests.support.cli import run_offline


async def shown(*arguments: str) -> tuple[list[str], str]:
    """The lines and the remarks of the command, an hour after the records."""
    out, err = await run_offline("nodes", *arguments, wall=lambda: EPOCH + 3600.0)
    return out.splitlines(), err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Records of four Frameworks, one elsewhere: node-1 fails half of all, node-2 one, and node-3 none."""
    lines = []
    for number in range(3):
        ends = [("node-1", 1), ("node-1", 0), ("node-2", int(number == 0)), ("node-2", 0), ("node-3", 0), ("node-3", 0)]
        statuses = [task_status(n, code=code, node=node) for n, (node, code) in enumerate(ends)]
        lines.append(framework_record(f"u{number}", where=f"default/f{number}", roles={"a": statuses}))
    lines.append(framework_record("x", where="other/x", roles={"a": [task_status(0, node="node-4")]}))
    (tmp_path / "2026-01-01.ndjson").write_bytes(b"".join(line + b"\n" for line in lines))
    return tmp_path


async def test_suspect_nodes_come_first(folder: Path) -> None:
    lines, _ = await shown("--dir", str(folder))
    assert lines[0].split() == ["NODE", "SUSPECT", "FAILED", "EXPECTED", "OF", "ATTEMPTS", "RATE", "FRAMEWORKS", "LAST"]
    assert [line.split()[:-1] for line in lines[1:]] == [
        ["node-1", "yes", "3", "0.5", "6", "50.0%", "3"],
        ["node-2", "1", "1.5", "6", "16.7%", "1"],
    ]
    assert len((await shown("--dir", str(folder), "--most", "1"))[0]) == 2
    assert [line.split()[0] for line in (await shown("-A", "--dir", str(folder)))[0][1:]] == [
        "node-1",
        "node-4",
        "node-2",
    ]


async def test_the_time_is_limited(folder: Path) -> None:
    lines, remark = await shown("--since", "30m", "--dir", str(folder))
    assert (lines, "no failure on a node" in remark) == ([], True)


async def test_the_output_for_programs(folder: Path) -> None:
    lines, _ = await shown("-o", "json", "--dir", str(folder))
    items = orjson.loads("".join(lines))["items"]
    assert [(one["key"], one["suspect"]) for one in items] == [("node-1", True), ("node-2", False)]
    lines, _ = await shown("-o", "yaml", "--dir", str(folder))
    assert yaml.safe_load("\n".join(lines))["items"] == items


async def test_an_archive_that_is_away(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot be read"):
        await shown("--dir", str(tmp_path / "none"))

"""The table of names in hosts files: reads of processes while it changes."""

from __future__ import annotations

import os
import random
from pathlib import Path

from frameworkcontroller.local.kubelet.hoststable import HostsFile, HostsTable, write_edits


def lines(text: bytes) -> set[tuple[str, ...]]:
    """The lines that count, as words."""
    return {tuple(line.split()) for line in text.decode().splitlines() if line and not line.startswith("#")}


def test_lines_come_and_go_without_moving_others() -> None:
    table = HostsTable()
    assert table.set("a", {"a.s": "127.1.0.1"})
    assert table.set("b", {"b.s": "127.1.0.2"})
    place = table.text.index(b"b.s")
    assert table.set("a", {})
    assert lines(table.text) == {("127.1.0.2", "b.s")}
    assert table.text.index(b"b.s") == place
    length = len(table.text)
    assert table.set("next a", {"a.s": "127.1.99.199"})
    assert lines(table.text) == {("127.1.99.199", "a.s"), ("127.1.0.2", "b.s")}
    assert (table.text.index(b"b.s"), len(table.text)) == (place, length)
    assert not table.set("next a", {"a.s": "127.1.99.199"})


def test_owners_of_equal_names_have_a_line_each() -> None:
    table = HostsTable()
    for number in (1, 2):
        table.set(f"p{number}", {"s": f"127.1.0.{number}"})
    table.set("p1", {})
    assert lines(table.text) == {("127.1.0.2", "s")}


def test_files_follow_a_random_history(tmp_path: Path) -> None:
    rng = random.Random(1)
    table = HostsTable()
    files: list[HostsFile] = []
    present: dict[str, dict[str, str]] = {}
    for step in range(300):
        owner = f"p{rng.randrange(20)}"
        present[owner] = {
            f"{owner}.{s} {s}": f"127.1.0.{rng.randrange(255)}" for s in rng.sample("xyz", rng.randrange(3))
        }
        table.set(owner, present[owner])
        if step % 50 == 0:
            head = f"127.0.0.1 head{step}\n"
            file = HostsFile(tmp_path / str(step), len(head), len(table.text))
            file.path.write_bytes(head.encode() + table.text)
            files.append(file)
        if rng.random() < 0.2:
            write_edits(files, table.take_edits())
    write_edits(files, table.take_edits())
    wanted = {(address, *names.split()) for shown in present.values() for names, address in shown.items()}
    for file in files:
        assert lines(file.path.read_bytes()) == {("127.0.0.1", f"head{file.path.name}"), *wanted}
    assert table.take_edits() == []


def test_a_pod_may_add_to_its_file_replace_it_or_be_gone(tmp_path: Path) -> None:
    table = HostsTable()
    table.set("a", {"a": "127.1.0.1"})
    table.take_edits()
    files = [HostsFile(tmp_path / name, 0, len(table.text)) for name in ("added", "emptied", "gone")]
    files[0].path.write_bytes(table.text + b"127.9.9.9 mine\n")
    files[1].path.write_bytes(b"short\n")
    table.set("b", {"b": "127.1.0.2"})
    write_edits(files, table.take_edits())
    table.set("c", {"c": "127.1.0.3"})
    table.set("a", {})
    write_edits(files, table.take_edits())
    assert lines(files[0].path.read_bytes()) == {("127.1.0.2", "b"), ("127.1.0.3", "c"), ("127.9.9.9", "mine")}
    assert files[1].path.read_bytes() == b"short\n"
    assert not files[2].path.exists()


def test_a_reader_sees_no_other_name_for_an_address(tmp_path: Path) -> None:
    table = HostsTable()
    names = [f"worker-{number}.train" for number in range(500)]
    for number, name in enumerate(names):
        table.set(name, {name: f"127.1.{number // 250}.{number % 250}"})
    path = tmp_path / "hosts"
    path.write_bytes(table.text)
    table.take_edits()
    file = HostsFile(path, 0, len(table.text))
    right = lines(table.text)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        while not os.read(reader, 1):
            os._exit(1)
        strange = 0
        for _ in range(300):
            strange += bool(lines(path.read_bytes()) - right)
        os._exit(min(strange, 100))
    os.write(writer, b"x")
    for number in range(300):
        for name in names[number % 3 :: 3]:
            table.set(name, {})
        write_edits([file], table.take_edits())
        for index, name in enumerate(names):
            table.set(name, {name: f"127.1.{index // 250}.{index % 250}"})
        write_edits([file], table.take_edits())
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0

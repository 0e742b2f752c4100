import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.kube.lineframer import LineFramer, LineTooLong


def test_lines_of_many_megabytes() -> None:
    framer = LineFramer()
    line = b"x" * 5_000_000
    stream = line + b"\n" + b"short\n"
    lines = [found for at in range(0, len(stream), 65536) for found in framer.feed(stream[at : at + 65536])]
    assert lines == [line, b"short"]
    assert framer.pending == 0


def test_the_rest_at_the_end_is_known() -> None:
    framer = LineFramer()
    assert framer.feed(b"a\nbc") == [b"a"]
    assert framer.feed(b"d") == []
    assert framer.pending == 3


def test_an_endless_line_is_refused() -> None:
    framer = LineFramer(limit=10)
    framer.feed(b"0123456789")
    with pytest.raises(LineTooLong):
        framer.feed(b"0")
    with pytest.raises(LineTooLong):
        LineFramer(limit=10).feed(b"0123456789a\n")


@given(st.binary(max_size=200), st.lists(st.integers(1, 40)))
def test_chunks_do_not_matter(text: bytes, sizes: list[int]) -> None:
    text = text.replace(b"\x00", b"\n")
    framer = LineFramer()
    lines: list[bytes] = []
    at = 0
    for size in [*sizes, len(text)]:
        lines += framer.feed(text[at : at + size])
        at += size
    *whole, rest = text.split(b"\n")
    assert lines == [line for line in whole if line]
    assert framer.pending == len(rest)

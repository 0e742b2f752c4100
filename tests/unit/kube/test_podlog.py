"""The end of a log with times."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.kube.podlog import NotALog, Tail

_STAMP = b"2026-01-31T12:00:00.123456789Z"


@given(
    lines=st.lists(
        st.binary(max_size=100).map(lambda one: one.translate(None, b"\n\r\v\f\x1c\x1d\x1e\x85")), max_size=30
    ),
    ends=st.booleans(),
    size=st.integers(1, 300),
    cuts=st.lists(st.integers(0, 5000), max_size=20),
)
def test_the_last_bytes_without_times(lines: list[bytes], ends: bool, size: int, cuts: list[int]) -> None:
    text = b"".join(line + b"\n" for line in lines)
    text = text if ends else text[:-1]
    sent = b"".join(_STAMP + b" " + line + b"\n" for line in lines)
    sent = sent if ends else sent[:-1]
    tail = Tail(size)
    places = [0, *sorted(min(cut, len(sent)) for cut in cuts), len(sent)]
    for begin, end in pairwise(places):
        tail.feed(sent[begin:end])
    tail.end()
    assert tail.data() == text[-size:]
    assert (tail.received, tail.cut, tail.lines) == (len(sent), len(text) > size, len(lines))


def test_a_long_line_is_bounded() -> None:
    tail = Tail(1000)
    tail.feed(_STAMP + b" ")
    for _ in range(1000):
        tail.feed(b"x" * 10_000)
    tail.feed(b"end\n")
    tail.end()
    assert tail.data() == b"x" * 996 + b"end\n"
    assert (tail.lines, tail.cut) == (1, True)


@pytest.mark.parametrize("answer", [b"failed to get  container status\n", b"2026-01-31 is no time\n", b"f"])
@pytest.mark.parametrize("step", [1, 1000])
def test_an_error_in_place_of_the_log(answer: bytes, step: int) -> None:
    tail = Tail(1000)
    for begin in range(0, len(answer), step):
        tail.feed(answer[begin : begin + step])
    tail.feed(b"x" * 10_000)
    with pytest.raises(NotALog) as caught:
        tail.end()
    assert str(caught.value).startswith(f"its node answers: {' '.join(answer.decode().split())}")
    assert len(str(caught.value)) < 2100
    assert tail.data() == b""


def test_an_empty_log() -> None:
    tail = Tail(1000)
    tail.end()
    assert (tail.data(), tail.lines, tail.cut) == (b"", 0, False)

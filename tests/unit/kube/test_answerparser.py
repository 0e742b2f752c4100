"""The parser of answers: every framing, at any split of the bytes, and invalid answers."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.kube.answerparser import AnswerParser, BadAnswer


def parse(data: bytes, cuts: list[int] | None = None, *, eof: bool = False) -> tuple[AnswerParser, bytes]:
    """The parser after these bytes, split at these places, and the body."""
    parser = AnswerParser()
    body = b""
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts or [])})
    for start, end in pairwise(edges):
        body += b"".join(parser.feed(data[start:end]))
    if eof:
        parser.feed_eof()
    return parser, body


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"

WHOLE = [
    pytest.param(OK + b"Content-Length: 5\r\n\r\nhello", b"hello", True, id="length"),
    pytest.param(OK + b"content-LENGTH:0\r\n\r\n", b"", True, id="empty"),
    pytest.param(CHUNKED + b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", b"hello", True, id="chunked"),
    pytest.param(
        OK + b'Transfer-Encoding: Chunked\r\n\r\n00A ;x="y"\r\n0123456789\r\n0\r\nA: b\r\nC: d\r\n\r\n',
        b"0123456789",
        True,
        id="extension, trailers",
    ),
    pytest.param(CHUNKED + b"4\r\n\r\n\r\n\r\n0\r\n\r\n", b"\r\n\r\n", True, id="line ends"),
    pytest.param(OK + b"Connection: Close\r\nContent-Length: 1\r\n\r\nx", b"x", False, id="close"),
    pytest.param(b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", b"x", False, id="1.0"),
    pytest.param(b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx", b"x", True, id="1.0 kept"),
    pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", b"", True, id="204"),
    pytest.param(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", b"", True, id="304"),
    pytest.param(
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        b"x",
        False,
        id="1.0 chunked",
    ),
    pytest.param(b"HTTP/1.1 200\r\nContent-Length: 1\r\n\r\nx", b"x", True, id="no reason"),
    pytest.param(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: a\r\n\r\n" + OK + b"Content-Length: 1\r\n\r\nx",
        b"x",
        True,
        id="1xx",
    ),
    pytest.param(OK + b"Content-Encoding: Identity\r\nContent-Length: 1\r\n\r\nx", b"x", True, id="identity"),
]


@pytest.mark.parametrize(("data", "body", "reusable"), WHOLE)
def test_an_answer_split_at_every_byte(data: bytes, body: bytes, reusable: bool) -> None:
    for cuts in ([], *([cut] for cut in range(len(data))), list(range(len(data)))):
        parser, found = parse(data, cuts)
        assert (found, parser.done, parser.reusable) == (body, True, reusable)
    for end in range(len(data)):
        parser, _ = parse(data[:end])
        assert not parser.done
        assert parser.begun == bool(end)
        with pytest.raises(BadAnswer):
            parser.feed_eof()


def test_headers_and_status() -> None:
    text = "HTTP/1.1 404 Not Found\r\nRetry-After:  7 \r\nX-A: 1\r\nx-a: é\r\nEmpty:\r\nContent-Length: 0\r\n\r\n"
    parser, _ = parse(text.encode("latin-1"))
    assert parser.head is not None
    assert parser.head.status == 404
    assert parser.head.reason == "Not Found"
    assert parser.head.headers == {"retry-after": "7", "x-a": "1, é", "empty": "", "content-length": "0"}


@given(st.binary(max_size=200), st.lists(st.integers(0, 300), max_size=5))
def test_a_body_without_a_length_ends_with_the_connection(body: bytes, cuts: list[int]) -> None:
    parser, found = parse(OK + b"\r\n" + body, cuts, eof=True)
    assert (found, parser.done, parser.reusable) == (body, True, False)


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=6),
    st.lists(st.integers(0, 10**6), max_size=12),
    st.sampled_from([b"", b";a=b", b" ;c"]),
)
def test_chunks_split_anywhere(chunks: list[bytes], cuts: list[int], extension: bytes) -> None:
    coded = b"".join(b"%x%b\r\n%b\r\n" % (len(chunk), extension, chunk) for chunk in chunks)
    parser, body = parse(CHUNKED + coded + b"0\r\n\r\n", cuts)
    assert (body, parser.done, parser.reusable) == (b"".join(chunks), True, True)


@pytest.mark.parametrize(
    "data",
    [
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 99 x\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        OK + b"no colon\r\n\r\n",
        OK + b"A : b\r\n\r\n",
        OK + b"A: b\r\n folded\r\n\r\n",
        OK + b"A: b\nC: d\r\n\r\n",
        OK + b"A: \0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\nA: b\r\n\r\n" * 3000,
        OK + b"Content-Length: -1\r\n\r\n",
        OK + b"Content-Length: +1\r\n\r\n",
        OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
        OK + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
        CHUNKED + b"x\r\n",
        CHUNKED + b"-1\r\n",
        CHUNKED + b"0x1\r\n",
        CHUNKED + b"1_0\r\n",
        CHUNKED + b"\r\n",
        CHUNKED + b"1\r\nab\r\n",
        CHUNKED + b"1" * 9000,
        CHUNKED + b"0\r\n" + b"A: b\r\n" * 20000,
        OK + b"A: " + b"x" * 70_000,
        OK + b"A: " + b"x" * 70_000 + b"\r\n\r\n",
        OK + b"Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx",
    ],
)
def test_an_invalid_answer(data: bytes) -> None:
    with pytest.raises(BadAnswer):
        parse(data)
    with pytest.raises(BadAnswer):
        parse(data, list(range(0, len(data), 1 if len(data) < 1000 else 1000)))


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=4))
def test_any_bytes_give_an_answer_or_its_error(data: bytes, cuts: list[int]) -> None:
    for start in (b"", OK, CHUNKED):
        try:
            parse(start + data, cuts, eof=True)
        except BadAnswer:
            continue


def test_bytes_after_the_answer_spoil_the_connection_but_not_the_answer() -> None:
    data = OK + b"Content-Length: 1\r\n\r\nx"
    parser, body = parse(data + b"y")
    assert (body, parser.done, parser.reusable) == (b"x", True, False)
    parser, _ = parse(data)
    assert parser.feed(b"y") == []
    assert not parser.reusable

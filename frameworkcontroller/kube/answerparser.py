"""Parses the answers of HTTP/1 servers. Pure: bytes in, parts of the body out."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

_MAX_HEAD_BYTES: Final = 64 * 1024
_MAX_LINE_BYTES: Final = 8 * 1024
_ENDLESS: Final = 2**63
# A compressed body may expand to the larger of both. Lists of objects that differ in little but their names: 40 times.
_MAX_PLAIN_BYTES: Final = 16 * 2**20
_MAX_RATIO: Final = 100

_STATUS: Final = re.compile(r"HTTP/1\.([01]) ([1-9]\d\d)(?: (.*))?", re.ASCII)
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_START: Final = b"HTTP/1."
_LENGTH: Final = re.compile(r"\d{1,18}", re.ASCII)
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?", re.DOTALL)


class BadAnswer(ValueError):
    """The answer is not valid HTTP/1."""


class Head(NamedTuple):
    """The status line and the headers, with names in lower case. Values of a repeated name are joined by commas."""

    status: int
    reason: str
    headers: Mapping[str, str]


# Phases. An Enum would take twice the time.
_AT_HEAD: Final = 0
_IN_BODY: Final = 1
_AT_CHUNK: Final = 2
_AFTER_CHUNK: Final = 3
_IN_TRAILER: Final = 4
_DONE: Final = 5


@lru_cache(256)
def _lowered(name: str) -> str:
    """Return the name of a header in lower case, "" if it is not valid."""
    return "" if _NAME.fullmatch(name) is None else name.lower()


class AnswerParser:
    """Parses the answer to one request, however its bytes are split. Answers 1xx are skipped."""

    __slots__ = (
        "_chunked", "_decoder", "_encoded_bytes", "_field_bytes", "_has_body", "_held", "_left", "_phase",
        "_plain_bytes", "begun", "head", "reusable",
    )  # fmt: skip

    def __init__(self, *, has_body: bool = True) -> None:
        """``has_body``: false for the answer to HEAD, whose headers are those of the answer to GET."""
        self.head: Head | None = None
        self.reusable = False
        """Whether the connection can be used for another request after this answer."""
        self.begun = False
        """True after the first byte."""
        self._phase = _AT_HEAD
        self._held = b""
        self._left = 0
        self._chunked = False
        self._has_body = has_body
        self._field_bytes = 0
        """Of headers and trailers, those of answers 1xx included."""
        self._decoder: zlib._Decompress | None = None
        self._encoded_bytes = self._plain_bytes = 0

    @property
    def done(self) -> bool:
        """True after the whole answer."""
        return self._phase == _DONE

    def feed(self, data: bytes) -> list[bytes]:
        """Return the parts of the body in these bytes. Raises BadAnswer."""
        parts: list[bytes] = []
        self.begun = True
        if self._held:
            data, self._held = self._held + data, b""
        at, end = 0, len(data)
        while at < end:
            phase = self._phase
            if phase == _IN_BODY:
                part = data[at : at + self._left]
                at += len(part)
                self._left -= len(part)
                parts.append(part)
                if not self._left:
                    self._phase = _AFTER_CHUNK if self._chunked else _DONE
            elif phase == _AT_HEAD:
                if not data.startswith(_START[: end - at], at):
                    raise BadAnswer(f"not HTTP/1: {data[at : at + 40]!r}")
                stop = data.find(b"\r\n\r\n", at)
                if self._field_bytes + (end if stop < 0 else stop) - at > _MAX_HEAD_BYTES:
                    raise BadAnswer(f"its headers exceed {_MAX_HEAD_BYTES} bytes")
                if stop < 0:
                    break
                self._field_bytes += stop - at
                self._take_head(data[at:stop])
                at = stop + 4
            elif phase == _DONE:
                # Of no request that was sent: nothing on this connection can be trusted.
                self.reusable = False
                return self._decoded(parts)
            else:
                stop = data.find(b"\r\n", at, at + _MAX_LINE_BYTES)
                if stop < 0:
                    if end - at >= _MAX_LINE_BYTES:
                        raise BadAnswer("a line of its chunked body is too long")
                    break
                self._take_line(data[at:stop])
                at = stop + 2
        if at < end:
            self._held = data[at:]
        return self._decoded(parts)

    def feed_eof(self) -> None:
        """End the answer with its connection. Raises BadAnswer if it is incomplete.

        A body without a length may have been cut off: asyncio does not tell whether TLS was ended by its peer. API
        servers send none, cut JSON cannot be parsed, and a watch resumes.
        """
        is_encoded = self._decoder is not None and not self._decoder.eof
        if self._phase != _IN_BODY or self._left < _ENDLESS // 2 or is_encoded:
            raise BadAnswer("it is incomplete")
        self._phase = _DONE

    def _take_head(self, data: bytes) -> None:
        text = data.decode("latin-1")
        line, *fields = text.split("\r\n")
        found = _STATUS.fullmatch(line)
        # Line ends but those between fields are not valid.
        if found is None or not text.count("\r") == text.count("\n") == len(fields) or "\0" in text:
            raise BadAnswer(f"invalid headers: {text[:200]!r}")
        minor, code, reason = found[1], int(found[2]), found[3] or ""
        headers: dict[str, str] = {}
        for field in fields:
            name, colon, value = field.partition(":")
            lower = _lowered(name)
            if not colon or not lower:
                raise BadAnswer(f"invalid header: {field[:200]!r}")
            value = value.strip(" \t")
            headers[lower] = f"{headers[lower]}, {value}" if lower in headers else value
        if code < 200:
            if code == 101:
                raise BadAnswer("it switches to another protocol")
            return
        self.head = Head(code, reason, headers)
        options = headers.get("connection", "").lower()
        self.reusable = "close" not in options and (minor == "1" or "keep-alive" in options)
        self._frame(code, headers, is_http_1_0=minor == "0")
        encoding = headers.get("content-encoding", "identity").lower()
        if self.done or encoding == "identity":
            return
        if encoding in ("gzip", "x-gzip", "deflate"):
            # Not asked for; proxies may still do it.
            self._decoder = zlib.decompressobj(zlib.MAX_WBITS | 32)
        else:
            raise BadAnswer(f"unknown Content-Encoding {encoding!r}")

    def _frame(self, code: int, headers: Mapping[str, str], *, is_http_1_0: bool) -> None:
        length, coding = headers.get("content-length"), headers.get("transfer-encoding")
        if code in (204, 304) or not self._has_body:
            self._phase = _DONE
        elif coding is not None:
            if coding.lower() != "chunked" or length is not None:
                raise BadAnswer(f"unclear length: Transfer-Encoding {coding!r}, Content-Length {length!r}")
            self._chunked = True
            self._phase = _AT_CHUNK
            # HTTP/1.0 has no chunks: some proxy may have passed on what it did not understand.
            self.reusable &= not is_http_1_0
        elif length is not None:
            if _LENGTH.fullmatch(length) is None:
                raise BadAnswer(f"invalid Content-Length {length!r}")
            self._left = int(length)
            self._phase = _IN_BODY if self._left else _DONE
        else:
            self._left = _ENDLESS
            self._phase = _IN_BODY
            self.reusable = False

    def _take_line(self, line: bytes) -> None:
        if self._phase == _AT_CHUNK:
            found = _CHUNK.fullmatch(line)
            if found is None:
                raise BadAnswer(f"invalid size of a chunk: {line[:40]!r}")
            self._left = int(found[1], 16)
            self._phase = _IN_BODY if self._left else _IN_TRAILER
        elif self._phase == _AFTER_CHUNK:
            if line:
                raise BadAnswer(f"a chunk is longer than its size: {line[:40]!r}")
            self._phase = _AT_CHUNK
        else:
            self._field_bytes += len(line)
            if self._field_bytes > _MAX_HEAD_BYTES:
                raise BadAnswer(f"its headers and trailers exceed {_MAX_HEAD_BYTES} bytes")
            if not line:
                self._phase = _DONE

    def _decoded(self, parts: list[bytes]) -> list[bytes]:
        if self._decoder is None:
            return parts
        plain = []
        for part in parts:
            self._encoded_bytes += len(part)
            left = max(_MAX_PLAIN_BYTES, _MAX_RATIO * self._encoded_bytes) - self._plain_bytes
            try:
                plain.append(self._decoder.decompress(part, left + 1))
            except zlib.error as error:
                raise BadAnswer(f"its Content-Encoding is invalid: {error}") from error
            self._plain_bytes += len(plain[-1])
            if len(plain[-1]) > left:
                bounds = f"{_MAX_PLAIN_BYTES} bytes, and to more than {_MAX_RATIO} times its size"
                raise BadAnswer(f"its compressed body expands to more than {bounds}")
        if self.done and not self._decoder.eof:
            raise BadAnswer("its Content-Encoding is incomplete")
        if self._decoder.unused_data:
            raise BadAnswer("its Content-Encoding ends before its body")
        return [part for part in plain if part]

"""Parses the answers of HTTP/1 servers with llhttp. Pure: bytes in, parts of the body out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from httptools import HttpParserError, HttpResponseParser

_MAX_HEAD_BYTES: Final = 64 * 1024


class BadAnswer(ValueError):
    """The answer is not valid HTTP/1."""


class Head(NamedTuple):
    """The status line and the headers, with names in lower case. Values of a repeated name are joined by commas."""

    status: int
    reason: str
    headers: Mapping[str, str]


class AnswerParser:
    """Parses the answers on one connection, however their bytes are split. Answers 1xx are skipped."""

    def __init__(self) -> None:
        self._parser = HttpResponseParser(self)
        # Old servers pad sizes, as RFC 9112 asks of recipients to accept.
        self._parser.set_dangerous_leniencies(lenient_spaces_after_chunk_size=True)
        self._parts: list[bytes] = []
        self.expect()

    def expect(self) -> None:
        """Begin the next answer. It must not be one to HEAD, which has the headers of a body, but none."""
        self.head: Head | None = None
        self.begun = False
        """True after the first byte."""
        self.done = False
        """True after the whole answer."""
        self.reusable = False
        """True if the connection can serve another request after this answer."""
        self._reason = b""
        self._headers: dict[str, str] = {}
        self._is_endless = False
        self._quiet_bytes = 0
        """Bytes in a row that bring nothing of a body: headers, trailers, answers 1xx."""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the parts of the body in these bytes. Raises BadAnswer."""
        was_done, self.begun = self.done, True
        if was_done:
            # Of no request that was sent: nothing on this connection can be trusted.
            self.reusable = False
            return []
        parts = self._parts = []
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            if not self.done:
                raise BadAnswer(str(error.__context__ or error)) from error
            self.reusable = False
        self._quiet_bytes = 0 if parts else self._quiet_bytes + len(data)
        if self._quiet_bytes > _MAX_HEAD_BYTES:
            raise BadAnswer(f"its headers or trailers exceed {_MAX_HEAD_BYTES} bytes")
        return parts

    def feed_eof(self) -> None:
        """End the answer with its connection. Raises BadAnswer if it is incomplete.

        A body without a length may have been cut off: asyncio does not tell whether TLS was ended by its peer. API
        servers send none, cut JSON cannot be parsed, and a watch resumes.
        """
        if not self._is_endless:
            raise BadAnswer("it is incomplete")
        self.done = True

    # --- of the parser ---

    def on_message_begin(self) -> None:
        if self.done:
            raise BadAnswer("unexpected bytes")

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        lower, text = name.decode("latin-1").lower(), value.decode("latin-1").rstrip(" \t")
        headers = self._headers
        headers[lower] = f"{headers[lower]}, {text}" if lower in headers else text

    def on_headers_complete(self) -> None:
        parser, headers = self._parser, self._headers
        version, status = parser.get_http_version(), parser.get_status_code()
        if version not in ("1.1", "1.0") or status < 100:
            raise BadAnswer(f"not HTTP/1: HTTP/{version} {status}")
        if status < 200:
            if status == 101:
                raise BadAnswer("it switches to another protocol")
            return
        self.head = Head(status, self._reason.decode("latin-1"), headers)
        # Trailers are no headers.
        self._headers = {}
        coding, length = headers.get("transfer-encoding"), headers.get("content-length")
        if coding is not None and (coding.lower() != "chunked" or length is not None):
            raise BadAnswer(f"unclear length: Transfer-Encoding {coding!r}, Content-Length {length!r}")
        has_body = status not in (204, 304)
        self._is_endless = has_body and coding is None and length is None
        # HTTP/1.0 has no chunks: a proxy may have passed on a coding that it did not understand.
        self.reusable = parser.should_keep_alive() and not (version == "1.0" and coding is not None)
        encoding = headers.get("content-encoding", "identity")
        if has_body and length != "0" and encoding.lower() != "identity":
            raise BadAnswer(f"Content-Encoding {encoding!r}, although only identity is acceptable")

    def on_body(self, part: bytes) -> None:
        self._parts.append(part)

    def on_message_complete(self) -> None:
        if self.head is not None:
            self.done = True
        self._reason, self._headers = b"", {}

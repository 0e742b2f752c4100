"""Where a server is to listen."""

import pytest

from frameworkcontroller.config.bindaddress import BindAddress, parse_bind_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("", None),
        ("0", None),
        (":8080", BindAddress("", 8080)),
        (":0", BindAddress("", 0)),
        ("0.0.0.0:65535", BindAddress("0.0.0.0", 65535)),
        ("localhost:80", BindAddress("localhost", 80)),
        ("[::1]:80", BindAddress("::1", 80)),
        ("[0:0::1]:80", BindAddress("::1", 80)),
    ],
)
def test_good(text: str, address: BindAddress | None) -> None:
    assert parse_bind_address(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "8080",
        "localhost",
        "localhost:",
        "localhost:http",
        "localhost:80/",
        "a b:80",
        "::1:80",
        "[::1]",
        "[1.2.3.4]:80",
        "[]:80",
        ":-1",
        ":65536",
        ":123456",
        ":80\n",
        ":٨٠",
        "http://localhost:80",
    ],
)
def test_bad(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        parse_bind_address(text)


@pytest.mark.parametrize("text", [":80", "localhost:80", "[::1]:80"])
def test_as_it_was_written(text: str) -> None:
    assert str(parse_bind_address(text)) == text

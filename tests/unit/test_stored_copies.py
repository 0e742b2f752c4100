"""Copies of stored objects, with which `python -m benchmarks scale` fills a store."""

import pytest

from benchmarks.stored import Template

UID = "11111111-2222-4333-8444-555555555555"
OTHER = "a0000007-2222-4333-8444-555555555555"


def test_a_copy_differs_in_all_its_tokens_and_in_nothing_else() -> None:
    value = b"k8s\x00\n\x0af00000-a-0\x12\x24" + UID.encode() + b"\x1a\x06f00000\xff\x001000"
    template = Template([(b"/registry/pods/scale-00/f00000-a-0", value)], ["f00000", "scale-00", UID])
    assert list(template.copy("f00007", "scale-07", OTHER)) == [
        (
            b"/registry/pods/scale-07/f00007-a-0",
            b"k8s\x00\n\x0af00007-a-0\x12\x24" + OTHER.encode() + b"\x1a\x06f00007\xff\x001000",
        )
    ]


def test_a_token_inside_a_longer_one_is_ignored() -> None:
    uid = "10001000-2222-4333-8444-555555555555"
    template = Template([(b"key", f"{uid} 1000".encode())], ["1000", uid])
    assert list(template.copy("2345", uid)) == [(b"key", f"{uid} 2345".encode())]


def test_a_copy_of_another_length_would_be_no_valid_protobuf() -> None:
    with pytest.raises(ValueError, match="not as long"):
        list(Template([(b"key", b"f00000")], ["f00000"]).copy("f0"))

"""The placeholders of host lists: the spec checks the same as the template replaces."""

from collections.abc import Sequence

import orjson
from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.api.hostlists import HostList, find, list_text, mark

FRAGMENTS = ("{{FC_HOSTS:a", "{{FC_HOSTS_JSON:a", "{{FC_HOSTS", ":80", ":", "a", "}}", "}", "{", '"', "\\", "é", "\n")


@given(st.lists(st.lists(st.sampled_from(FRAGMENTS), max_size=8).map("".join), max_size=3))
def test_the_spec_checks_each_replaced_placeholder(texts: Sequence[str]) -> None:
    replaced: list[HostList] = []

    def text_of(wanted: HostList) -> bytes:
        replaced.append(wanted)
        return b'\\"'

    template, words = mark(orjson.dumps(texts), b"@A-", text_of, lambda _: 0)
    if words is not None:
        template = words.filled(template)
    places = list(find(list(texts)))
    # Else the spec is refused.
    if all(place.hosts.role == "a" and not place.problem() for place in places):
        assert set(replaced) == {place.hosts for place in places}
        wanted = list(texts)
        for place in places:
            wanted = [text.replace(place.text, '"') for text in wanted]
        assert orjson.loads(template) == wanted


@given(
    st.builds(HostList, st.sampled_from(["a", "worker"]), st.sampled_from(["", "8", "65535"]), st.booleans()),
    st.sampled_from(["", "a.b"]),
    st.integers(0, 30) | st.integers(90, 120) | st.integers(990, 1010) | st.integers(9990, 10000),
)
def test_the_size_is_known_without_the_list(wanted: HostList, subdomain: str, number: int) -> None:
    text = list_text(wanted, "f", subdomain, number)
    assert wanted.size("f", subdomain, number) == len(text.replace(b"\\", b""))
    assert wanted.escaped_size("f", subdomain, number) == len(text)

"""The placeholders of host lists: the spec checks what the template replaces."""

from collections.abc import Sequence

import orjson
from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.api.hostlists import HostList, find, replace

FRAGMENTS = ("{{FC_HOSTS:a", "{{FC_HOSTS_JSON:a", "{{FC_HOSTS", ":80", ":", "a", "}}", "}", "{", '"', "\\", "é", "\n")


@given(st.lists(st.lists(st.sampled_from(FRAGMENTS), max_size=8).map("".join), max_size=3))
def test_what_is_checked_is_what_is_replaced(texts: Sequence[str]) -> None:
    replaced: list[HostList] = []

    def text_of(wanted: HostList) -> str:
        replaced.append(wanted)
        return '"'

    template, words = replace(orjson.dumps(texts), text_of, b"@0-")
    places = list(find(list(texts)))
    # Else the spec is refused.
    if all(place.hosts.role == "a" and not place.problem() for place in places):
        assert set(replaced) == {place.hosts for place in places}
        wanted = list(texts)
        for place in places:
            wanted = [text.replace(place.text, '"') for text in wanted]
        for word, value in words.items():
            template = template.replace(word, value)
        assert orjson.loads(template) == wanted

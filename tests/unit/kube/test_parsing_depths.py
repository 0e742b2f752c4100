from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.depths import DEEPEST, was_cut, without_depths


def nested(levels: int, inside: bytes = b"1") -> bytes:
    opening, closing = (b'{"a":', b"}") if levels % 2 else (b"[", b"]")
    return opening * levels + inside + closing * levels


def test_too_deep_values_are_cut_off_and_the_rest_stays() -> None:
    text = b'{"good":%s,"bad":[%s,%s],"end":"}]"}' % (nested(50), nested(20_000), nested(1_200, b'"]}\\"["'))
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(text)
    value = orjson.loads(without_depths(text))
    assert value["good"] == orjson.loads(nested(50))
    assert value["end"] == "}]"
    assert [was_cut(value[key]) for key in ("good", "bad", "end")] == [False, True, False]


def test_the_last_level_that_is_read() -> None:
    assert without_depths(nested(DEEPEST)) == nested(DEEPEST)
    assert was_cut(orjson.loads(without_depths(nested(DEEPEST + 1))))


json = st.recursive(
    st.none() | st.text(alphabet='ab"\\{}[]', max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='"\\[}', max_size=3), inner, max_size=3)
    ),
)


@given(json)
def test_nothing_else_is_touched(value: Any) -> None:
    text = orjson.dumps(value)
    assert without_depths(text) is text
    assert not was_cut(value)


@given(st.binary(max_size=50))
def test_invalid_json_does_no_harm(text: bytes) -> None:
    assert without_depths(text) is text

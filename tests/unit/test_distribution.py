"""How tests are spread over processes."""

import pytest

from tests.support.distribution import encodable, group, rank


@pytest.mark.parametrize(
    ("nodeid", "found"),
    [
        ("tests/unit/test_a.py::test_b[real-1.20]", "control plane 1.20"),
        ("tests/integration/test_a.py::test_b[real-1.36]", "control plane 1.36"),
        ("tests/conformance/test_a.py::test_b[real-assets-x]", "control plane assets"),
        ("tests/conformance/test_a.py::test_b[x-y-real-1.20]", "control plane 1.20"),
        ("tests/conformance/test_a.py::test_b[virtual-embedded]", "tests/conformance/test_a.py"),
        ("tests/unit/test_a.py::test_b[surreal-1.20]", "tests/unit/test_a.py"),
        ("tests/unit/test_a.py::TestB::test_c", "tests/unit/test_a.py"),
        ("tests/chaos/test_a.py::test_b_on_a_real_control_plane[1.20]", "control plane 1.20"),
        ("tests/chaos/test_a.py::test_b[1]", "tests/chaos/test_a.py::test_b[1]"),
        ("tests/property/test_a.py::test_b", "tests/property/test_a.py::test_b"),
    ],
    ids=map(str, range(10)),
)
def test_tests_that_share_something_run_together(nodeid: str, found: str) -> None:
    assert group(nodeid) == found


def test_long_tests_begin_first() -> None:
    ordered = [
        "tests/integration/test_a.py::test_b[real-1.20]",
        "tests/chaos/test_a.py::test_b[1]",
        "tests/unit/test_a.py::test_b",
    ]
    assert [rank(nodeid) for nodeid in ordered] == [0, 1, 2]


def test_reports_can_be_sent_after_any_output() -> None:
    report = {"sections": [("log", "a\ud800é"), ("out", "\udcff")], "outcome": "passed", "when": None, "duration": 0.5}
    sent = {"sections": [("log", "a\\ud800é"), ("out", "\\udcff")], "outcome": "passed", "when": None, "duration": 0.5}
    assert encodable(report) == sent

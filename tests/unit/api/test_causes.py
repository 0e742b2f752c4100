"""Causes of ends, in one line."""

import pytest

from frameworkcontroller.api.causes import cause, last_line
from frameworkcontroller.api.completion import (
    CONTAINER_PERMANENT_FAILED,
    POD_CREATION_PERMANENT_ERROR,
    CompletionStatus,
    ContainerCompletion,
    PodCompletion,
)


def test_why_a_pod_failed_is_said_in_its_own_words() -> None:
    pod = PodCompletion(
        "Evicted",
        "low on memory",
        (
            ContainerCompletion("a", 0),
            ContainerCompletion("b", 137, "OOMKilled", "killed", 9),
            ContainerCompletion("c", 7),
        ),
    )
    completion = CompletionStatus.of(CONTAINER_PERMANENT_FAILED, "Pod failed: PodPattern unmatched: {}", pod=pod)
    assert cause(completion) == ("Evicted: low on memory; b was ended by signal 9 (OOMKilled): killed; c exited with 7")
    assert cause(CompletionStatus.of(CONTAINER_PERMANENT_FAILED, "said\nso")) == "said so"
    bare = CompletionStatus.of(CONTAINER_PERMANENT_FAILED, "Pod failed: x", pod=PodCompletion())
    assert cause(bare) == "Pod failed: x"


def test_words_that_pod_and_container_share_are_said_once() -> None:
    pod = PodCompletion("NoCommand", "no\ncommand", (ContainerCompletion("a", 128, "StartError", "no command"),))
    completion = CompletionStatus.of(CONTAINER_PERMANENT_FAILED, "Pod failed: x", pod=pod)
    assert cause(completion) == "NoCommand; a exited with 128 (StartError): no command"


def test_code_0_of_a_container_that_never_ran_is_not_told_as_an_end() -> None:
    containers = (ContainerCompletion("main", 0), ContainerCompletion("done", 0, "Completed"))
    text = 'Pod failed: PodPattern unmatched: {"containers":[{"name":"main","code":0}]}'
    ended = CompletionStatus.of(CONTAINER_PERMANENT_FAILED, text, pod=PodCompletion(containers=containers))
    assert cause(ended) == "main did not end by itself"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ('{"ErrStatus":{"message":"Pod \\"a\\" is invalid: \\u003cno\\u003e"}}', 'Pod "a" is invalid: <no>'),
        ('{"ErrStatus":{"code":422}}', '{"ErrStatus":{"code":422}}'),
        ('{"ErrStatus":null}', '{"ErrStatus":null}'),
        ('{"code":422}', '{"code":422}'),
        ('"text"', '"text"'),
        ("{", "{"),
    ],
)  # fmt: skip
def test_why_a_pod_was_refused_is_said_in_the_api_servers_words(answer: str, said: str) -> None:
    completion = CompletionStatus.of(POD_CREATION_PERMANENT_ERROR, f"Failed to create Pod: {answer}")
    assert cause(completion) == f"Pod refused: {said}"


def test_an_entry_of_an_archive_has_the_same_cause() -> None:
    """It has the diagnostics alone, in which the Pod is JSON."""

    def archived(text: str) -> str:
        return cause(CompletionStatus.of(CONTAINER_PERMANENT_FAILED, text))

    pod = '{"reason":"Evicted","message":"low\\non memory","containers":[{"name":"b","code":137,"reason":"OOMKilled"}]}'
    for how in ("matched", "unmatched"):
        assert archived(f"Pod failed: PodPattern {how}: {pod}") == (
            "Evicted: low on memory; b exited with 137 (OOMKilled)"
        )
    for odd in ("{}", '{"containers":[1]}', pod[:-9], "[]"):
        text = f"Pod failed: PodPattern unmatched: {odd}"
        assert archived(text) == " ".join(text.split())


def test_a_line_that_only_separates_is_not_the_last_one() -> None:
    assert last_line("train.py FAILED\n  exitcode  : 1 (pid: 7)\n====\n \n") == "exitcode : 1 (pid: 7)"
    assert last_line("----\n====\n") == ""

"""Entries of podFailureSpec with ``cascade``: their rules, and the words of the shipped ones in real logs."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any, Final

import pytest

from frameworkcontroller.api.objects import pod_record
from frameworkcontroller.config.config import ConfigurationError, load_config, shipped_config
from frameworkcontroller.machine.kernel.failure import Classifier

CONSEQUENCES: Final = {
    "a collective that timed out": (
        "[rank0]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=466119168, NumelOut=466119168, Timeout(ms)=600000) "
        "ran for 600060 milliseconds before timing out."
    ),
    "the end of its stack": (
        "frame #1: c10d::ProcessGroupNCCL::WorkNCCL::checkTimeout(std::optional<std::chrono::duration<long, "
        "std::ratio<1l, 1000l> > >) + 0x1d2 (0x7f3b6e71a8d2 in /usr/local/lib/python3.10/dist-packages/torch/lib/"
        "libtorch_cuda.so)\nframe #2: c10d::ProcessGroupNCCL::watchdogHandler() + 0x233 (0x7f3b6e7213b3 in libtorch)"
    ),
    "an aborted communicator": "RuntimeError: NCCL communicator was aborted on rank 0.",
    "a dump for another rank": (
        "[PG ID 0 PG GUID 0(default_pg) Rank 2] Observed flight recorder dump signal from another rank via TCPStore."
    ),
    "a remote error of NCCL": (
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1331, "
        "remote process exited or there was a network error, NCCL version 2.14.3\nncclRemoteError: A call failed "
        "possibly due to a network error or a remote process exiting prematurely."
    ),
    "a closed socket of NCCL": (
        "a100-18:183006:183181 [1] misc/socket.cc:538 NCCL WARN Net : Connection closed by remote peer a100-22<47861>"
    ),
    "a broken socket of NCCL": (
        "a100-22:183006:183220 [1] misc/socket.cc:518 NCCL WARN Net : Call to recv from 10.200.84.247<58355> failed : "
        "Broken pipe"
    ),
    "the store is gone": (
        "[rank6]:[W729 10:15:17.529361055 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=76, "
        "addr=[localhost]:60950, remote=[localhost]:29500): Connection reset by peer\nException raised from recvBytes "
        "at /pytorch/torch/csrc/distributed/c10d/Utils.hpp:675 (most recent call first):"
    ),
    "the store shut down": (
        'Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early), with '
        "error: Broken pipe"
    ),
    "the store, by its exception": "torch.distributed.DistNetworkError: Connection reset by peer",
    "others do not arrive": (
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined."
    ),
    "the rendezvous is gone": (
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has "
        "failed. See inner exception for details."
    ),
    "torchrun was stopped": (
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 17 got signal: 15"
    ),
    "Gloo, reset": (
        "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:535] Read error [10.1.3.122]:42916: "
        "Connection reset by peer"
    ),
    "Gloo, closed": (
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer "
        "[18.25.6.30]:28048"
    ),
    "Gloo, timed out": (
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:84] Timed out waiting 1800000ms for "
        "recv operation to complete"
    ),
    "Open MPI's daemon": (
        "ORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[64112,0],0] on node launcher"
    ),
    "Open MPI 5's daemon": "PRTE has lost communication with a remote daemon.",
    "a peer in Open MPI": "An MPI communication peer process has unexpectedly disconnected.  This\nusually indicates",
    "TCP in Open MPI": (
        "[node1][[13381,1],0][btl_tcp_frag.c:241:mca_btl_tcp_frag_recv] mca_btl_tcp_frag_recv: readv failed: "
        "Connection reset by peer (104)"
    ),
    "MPICH": (
        "Fatal error in PMPI_Test: A process has failed, error stack:\nMPID_nem_tcp_connpoll(1826): Communication "
        "error with rank 1: Connection reset by peer"
    ),
    "UCX": "[compute-0-20:9358 :0:9358]    ud_iface.c:737  UCX Fatal: transport error: Endpoint timeout",
}
CAUSES: Final = {
    "a traceback": "Traceback (most recent call last):\n  File x\nValueError: bad batch",
    "no memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.",
    "an error of CUDA that the watchdog reports": (
        "terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  [PG ID 0 PG GUID 0 Rank 3] "
        "Process group watchdog thread terminated with exception: CUDA error: an illegal memory access was "
        "encountered\nframe #3: c10d::ProcessGroupNCCL::WorkNCCL::finishedGPUExecutionInternal() const + 0x75\n"
        "frame #5: c10d::ProcessGroupNCCL::watchdogHandler() + 0x233"
    ),
    "another connection": "requests.exceptions.ConnectionError: ('Connection aborted.', ConnectionResetError(104))",
    "a broken pipe to another program": "BrokenPipeError: [Errno 32] Broken pipe",
    "an assertion": "train: model.cc:17: main: Assertion `n > 0' failed.",
    "NCCL's own trouble": "ncclSystemError: System call (e.g. socket, malloc) or external library call failed",
    "nothing": "",
}


def classified(classifier: Classifier, *ends: tuple[str, int, str]) -> tuple[int, set[str]]:
    """The code of a Pod whose containers (name, exit code, message) have ended, and those that follow others."""
    states: list[dict[str, Any]] = [
        {"name": name, "state": {"terminated": {"exitCode": code, "reason": "Error", "message": said}}}
        for name, code, said in ends
    ]
    metadata = {"name": "f-a-0", "namespace": "ns", "uid": "u", "resourceVersion": "1"}
    pod = pod_record({"metadata": metadata, "status": {"phase": "Failed", "containerStatuses": states}})
    return classifier.classify(pod).code, set(classifier.cascading(pod))


SHIPPED: Final = shipped_config().plan_limits().classifier


@pytest.mark.parametrize("words", CONSEQUENCES)
@pytest.mark.parametrize("code", [1, 7, 134])
def test_a_consequence_is_known_by_its_words_and_keeps_its_code(words: str, code: int) -> None:
    assert classified(SHIPPED, ("main", code, CONSEQUENCES[words])) == (code, {"main"})


@pytest.mark.parametrize("words", CAUSES)
def test_other_words_are_no_consequence(words: str) -> None:
    assert classified(SHIPPED, ("main", 1, CAUSES[words])) == (1, set())


def test_only_the_container_with_the_words_follows() -> None:
    words = CONSEQUENCES["Gloo, reset"]
    assert classified(SHIPPED, ("main", 1, words), ("log", 3, "disk is full"))[1] == {"main"}


def load(path: Path, text: str) -> Classifier:
    file = path / "frameworkcontroller.yaml"
    file.write_text(dedent(text))
    return load_config(file, required=True).plan_limits().classifier


def test_an_entry_without_a_code_does_not_classify(tmp_path: Path) -> None:
    made = load(
        tmp_path,
        """
        podFailureSpec:
        - cascade: true
          podPatterns: [{containers: [{messageRegex: lost}]}]
        - code: 5
          podPatterns: [{containers: [{codeRange: {min: 3, max: 3}}]}]
        """,
    )
    assert classified(made, ("main", 3, "lost")) == (5, {"main"})


def test_an_entry_with_a_code_classifies_too(tmp_path: Path) -> None:
    made = load(tmp_path, "podFailureSpec: [{cascade: true, code: 5, podPatterns: [{messageRegex: ''}]}]")
    assert classified(made, ("main", 3, ""), ("log", 0, "")) == (5, {"main", "log"})


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("{cascade: false, podPatterns: [{}]}", "podFailureSpec[0].code: is required"),
        ("{cascade: maybe, podPatterns: [{}]}", "podFailureSpec[0].cascade: 'maybe': must be true or false"),
        ("{cascade: true}", "podFailureSpec[0].podPatterns: is required"),
        ("{cascade: true, code: 0, podPatterns: [{}]}", "0: is within the reserved codes -999 to 0"),
        ("{cascaded: true, code: 5, podPatterns: [{}]}", "cascaded: unknown key; did you mean cascade?"),
    ],
)
def test_an_invalid_entry_is_refused(tmp_path: Path, entry: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, f"podFailureSpec: [{entry}]")
    assert said in str(caught.value)


def test_a_phrase_without_a_code_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    load(tmp_path, "podFailureSpec: [{cascade: true, phrase: PeerLost, podPatterns: [{}]}]")
    assert "podFailureSpec[0].phrase: has no effect without a code" in caplog.text

"""The configuration that ships: every completion code of it, from Pod statuses as clusters really write them."""

import itertools
import json
import re
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
import yaml

from frameworkcontroller.api.completion import DISRUPTIONS, RESERVED, Code, CompletionStatus
from frameworkcontroller.api.failurespec import compile_regex
from frameworkcontroller.api.objects import pod_record
from frameworkcontroller.config.config import SHIPPED_CONFIG_FILE, Config, shipped_config
from frameworkcontroller.machine.kernel.failure import Classifier

Json = dict[str, Any]

TRANSIENT = ("Transient",)
PERMANENT = ("Permanent",)
NOTHING = None
"""No attributes: it counts against the retries that are allowed."""

CONTRACT = {
    -1000: ("PodEvicted", TRANSIENT),
    -1001: ("PodNodeLost", TRANSIENT),
    -1002: ("PodScheduledToInsufficientResourceNode", TRANSIENT),
    -1003: ("PodPreemptedForCriticalPod", TRANSIENT),
    -1004: ("PodDeadlineExceeded", PERMANENT),
    -1005: ("PodNodeAdmissionForbidden", PERMANENT),
    -1006: ("PodNodeAdmissionUnexpectedError", TRANSIENT),
    -1200: ("ContainerDockerOOMKilled", PERMANENT),
    -1201: ("ContainerDockerCreationError", NOTHING),
    -1202: ("ContainerDockerStartCmdPermissionDenied", PERMANENT),
    -1203: ("ContainerDockerStartCmdNotFound", PERMANENT),
    -1204: ("ContainerDockerStartUnknownError", NOTHING),
    130: ("ContainerSigIntReceived", TRANSIENT),
    131: ("ContainerSigQuitReceived", TRANSIENT),
    132: ("ContainerSigIllReceived", PERMANENT),
    134: ("ContainerSigAbrtReceived", NOTHING),
    135: ("ContainerSigBusReceived", PERMANENT),
    136: ("ContainerSigFpeReceived", PERMANENT),
    137: ("ContainerSigKillReceived", TRANSIENT),
    139: ("ContainerSigSegvReceived", PERMANENT),
    141: ("ContainerSigPipeReceived", PERMANENT),
    143: ("ContainerSigTermReceived", TRANSIENT),
}
"""The codes that clients know, word for word."""

OURS = {
    -1007: ("PodNodeShutdown", TRANSIENT),
    -1008: ("PodPreemptedByScheduler", TRANSIENT),
    -1009: ("PodEvictedByTaint", TRANSIENT),
    -1010: ("PodEvictedByApi", TRANSIENT),
    -1011: ("PodDeletedByPodGC", TRANSIENT),
    -1012: ("PodTerminatedByKubelet", TRANSIENT),
    -1013: ("PodNodeAffinityUnmatched", TRANSIENT),
    -1014: ("PodNodePortsTaken", TRANSIENT),
    -1015: ("PodNodeTaintNotTolerated", TRANSIENT),
    -1016: ("PodNodeVolumeLimitExceeded", TRANSIENT),
    -1017: ("PodNodeResourceAlignmentError", NOTHING),
    -1018: ("PodNodeFeatureUnsupported", PERMANENT),
    -1019: ("PodNodeSysctlForbidden", PERMANENT),
    -1020: ("PodNodeAppArmorUnavailable", NOTHING),
    -1021: ("PodProviderFailed", NOTHING),
    -1022: ("PodProviderLost", TRANSIENT),
    -1205: ("ContainerRuntimeUnavailable", NOTHING),
    -1206: ("ContainerStartCmdNotFound", PERMANENT),
    -1207: ("ContainerStartCmdPermissionDenied", PERMANENT),
    -1208: ("ContainerStartCmdFormatInvalid", PERMANENT),
    -1209: ("ContainerStartOOMKilled", PERMANENT),
    -1210: ("ContainerStartUnknownError", NOTHING),
    -1211: ("ContainerStatusUnknown", TRANSIENT),
    -1212: ("ContainerExitUnknown", TRANSIENT),
    -1213: ("ContainerSeccompKilled", PERMANENT),
}
"""What today's Kubernetes and container runtimes say beyond that. Once published, these are a contract too."""


@dataclass(frozen=True)
class Case:
    """A Pod's status and its code. ``matched``: the JSON in the diagnostics, decoded."""

    code: int
    status: Json
    matched: Json = field(default_factory=dict)

    def __str__(self) -> str:
        reasons = [self.status.get("reason"), *(c["state"]["terminated"]["reason"] for c in containers(self.status))]
        return f"{self.code}-{'-'.join(reason for reason in reasons if reason)}"


def containers(status: Json) -> list[Json]:
    listed = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    return [item for item in listed if "terminated" in item["state"]]


def rejected(code: int, reason: str, message: str) -> Case:
    """A Pod that a node did not take: none of its containers ever ran."""
    return Case(code, {"reason": reason, "message": message}, {"reason": reason, "message": message})


def ended(code: int, reason: str, message: str, exit_code: int = 137) -> Case:
    """A Pod that was ended while it ran."""
    status = {"reason": reason, "message": message, **ran("Error", exit_code)}
    return Case(code, status, {"reason": reason, "message": message})


def stopped(code: int, reason: str, exit_code: int, message: str = "", *, names_reason: bool = True) -> Case:
    """A Pod with a failed container. ``names_reason``: whether the pattern names the container's reason."""
    named = {"reason": reason} if names_reason else {}
    said = {"message": message} if message else {}
    return Case(
        code, ran(reason, exit_code, message), {"containers": [{"name": "main", **named, **said, "code": exit_code}]}
    )


def ran(reason: str, exit_code: int, message: str = "") -> Json:
    """Container statuses of a Pod with one container, after an init container that did its work."""
    terminated = {"exitCode": exit_code, "reason": reason, "finishedAt": "2026-11-21T03:00:09Z"}
    return {
        "initContainerStatuses": [
            {
                "name": "barrier",
                "state": {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": "2026-11-21T03:00:05Z"}},
            }
        ],
        "containerStatuses": [
            {"name": "main", "state": {"terminated": {**terminated, **({"message": message} if message else {})}}}
        ],
    }


SHIM = "failed to create containerd task: failed to create shim task: OCI runtime create failed: "
RUNC = SHIM + "runc create failed: unable to start container process: "
DOCKER = "OCI runtime create failed: container_linux.go:380: starting container process caused: "

CASES = [
    ended(
        -1000,
        "Evicted",
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 92Mi. "
        "Container main was using 1523Mi, request is 0, has larger consumption of memory. ",
    ),
    rejected(-1000, "Evicted", "The node had condition: [DiskPressure]. "),
    ended(-1000, "Evicted", "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. "),
    ended(-1001, "NodeLost", "Node node-7 which was running pod train-worker-3 is unresponsive"),
    rejected(
        -1002,
        "OutOfcpu",
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 4000, used: 61200, capacity: 64000",
    ),
    rejected(
        -1002,
        "OutOfnvidia.com/gpu",
        "Node didn't have enough resource: nvidia.com/gpu, requested: 1, used: 8, capacity: 8",
    ),
    rejected(-1002, "OutOfpods", "Pod Node didn't have enough resource: pods, requested: 1, used: 110, capacity: 110"),
    ended(-1003, "Preempting", "Preempted in order to admit critical pod"),
    ended(-1004, "DeadlineExceeded", "Pod was active on the node longer than the specified deadline", 143),
    rejected(-1005, "Forbidden", "forbidden sysctl"),
    rejected(
        -1006,
        "UnexpectedAdmissionError",
        "Pod was rejected: Allocate failed due to no healthy devices present; "
        "cannot allocate unhealthy devices nvidia.com/gpu, which is unexpected",
    ),
    rejected(-1006, "UnknownReason", "GeneralPredicates failed due to unknown reason, which is unexpected."),
    rejected(-1006, "InvalidNodeInfo", "Kubelet cannot get node info."),
    rejected(-1006, "UnexpectedPredicateFailureType", "GeneralPredicates failed due to x, which is unexpected."),
    ended(-1007, "Terminated", "Pod was terminated in response to imminent node shutdown.", 143),
    rejected(-1007, "NodeShutdown", "Pod was rejected as the node is shutting down."),
    ended(-1007, "Shutdown", "Node is shutting, evicting pods", 0),
    rejected(-1007, "Shutdown", "Pod Node is in progress of shutting down, not admitting any new pods"),
    ended(-1008, "Preempted", "Preempted by a pod on node node-7"),
    ended(-1008, "PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod"),
    ended(-1008, "PreemptionByKubeScheduler", "Kube-scheduler: preempting"),
    ended(-1009, "TaintManagerEviction", "Marking for deletion Pod team-a/train-worker-3"),
    ended(-1009, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"),
    ended(-1010, "EvictionByEvictionAPI", "Eviction API: evicting"),
    ended(-1011, "DeletionByPodGC", "PodGC: node no longer exists"),
    ended(-1012, "TerminationByKubelet", "Pod was terminated in response to imminent node shutdown."),
    rejected(
        -1013,
        "NodeAffinity",
        "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
    ),
    rejected(-1013, "MatchNodeSelector", "Predicate MatchNodeSelector failed"),
    rejected(-1013, "NodeName", "Predicate NodeName failed: node(s) didn't match the requested node name"),
    rejected(-1013, "HostName", "Predicate HostName failed"),
    rejected(
        -1014,
        "NodePorts",
        "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
    ),
    rejected(-1014, "PodFitsHostPorts", "Predicate PodFitsHostPorts failed"),
    rejected(-1014, "HostPortConflict", "Pod cannot be started due to host port conflict"),
    rejected(
        -1015,
        "TaintToleration",
        "Pod was rejected: Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
    ),
    rejected(-1016, "VolumeAttachmentLimitExceeded", "Node has reached its volume attachment limit, rejecting pod"),
    rejected(-1017, "TopologyAffinityError", "Resources cannot be allocated with Topology locality"),
    rejected(-1017, "SMTAlignmentError", "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"),
    rejected(-1017, "inconsistentCPUAllocationError", "Inconsistent CPU allocation"),
    rejected(-1017, "prohibitedCPUAllocationError", "Prohibited CPU allocation"),
    rejected(-1017, "getPromisedCPUSetError", "Cannot get the promised CPU set"),
    rejected(-1018, "PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"),
    rejected(
        -1018,
        "PodOSSelectorNodeLabelDoesNotMatch",
        "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
    ),
    rejected(
        -1018, "InitContainerRestartPolicyForbidden", 'Init container "proxy" may not have a non-default restartPolicy'
    ),
    rejected(
        -1018, "SupplementalGroupsPolicyNotSupported", "SupplementalGroupsPolicy=Strict is not supported in this node"
    ),
    rejected(-1018, "PodLevelResourcesNotSupported", "PodLevelResources feature gate is disabled"),
    rejected(-1018, "PodFeatureUnsupported", "UserNamespaces is not supported on this node"),
    rejected(-1019, "SysctlForbidden", 'forbidden sysctl: "kernel.msgmax" not allowlisted'),
    rejected(-1020, "AppArmor", 'Cannot enforce AppArmor: profile "k8s-apparmor-example-deny-write" is not loaded'),
    rejected(-1021, "ProviderFailed", "container group quota 'ContainerGroups' exceeded in region 'westus'"),
    Case(
        -1022,
        {
            "reason": "NotFound",
            "message": "The pod status was not found and may have been deleted from the provider",
            **ran("NotFound", -137, "Container was not found and was likely deleted"),
        },
        {"reason": "NotFound", "message": "The pod status was not found and may have been deleted from the provider"},
    ),
    stopped(-1200, "OOMKilled", 137),
    stopped(-1200, "OOMKilled", 1, "Killed\nTraceback (most recent call last):\n  <module> & co"),
    stopped(-1201, "ContainerCannotRun", 125, "error while creating mount source path '/data': file exists"),
    stopped(-1202, "ContainerCannotRun", 126, DOCKER + 'exec: "/etc/passwd": permission denied: unknown'),
    stopped(-1203, "ContainerCannotRun", 127, DOCKER + 'exec: "trian": executable file not found in $PATH: unknown'),
    stopped(-1203, "ContainerCannotRun", 128, "the command trian was Not Found"),
    stopped(-1203, "ContainerCannotRun", 128, "The system cannot find the file specified. (0x2)"),
    stopped(-1203, "ContainerCannotRun", 128, "stat /train.sh: no such file or directory"),
    stopped(-1204, "ContainerCannotRun", 128, "cannot join network of a non running container"),
    stopped(
        -1205,
        "StartError",
        128,
        SHIM + "unable to retrieve OCI runtime error (open /run/containerd/x/log.json: no such file or directory): "
        'exec: "nvidia-container-runtime": executable file not found in $PATH: <nil>: unknown',
    ),
    stopped(-1206, "StartError", 128, RUNC + 'exec: "trian": executable file not found in $PATH: unknown'),
    stopped(-1206, "StartError", 128, RUNC + 'exec: "/app": stat /app: no such file or directory: unknown'),
    stopped(
        -1206,
        "StartError",
        128,
        SHIM + "crun: executable file `trian` not found in $PATH: No such file or directory: unknown",
    ),
    stopped(-1207, "StartError", 128, RUNC + 'exec: "/etc/passwd": permission denied: unknown'),
    stopped(-1207, "StartError", 128, RUNC + 'exec: "/": is a directory: unknown'),
    stopped(-1207, "StartError", 128, SHIM + "crun: open executable: Permission denied: OCI permission denied"),
    stopped(-1208, "StartError", 128, RUNC + "exec /app: exec format error: unknown"),
    stopped(-1208, "Error", 1, "exec /bin/odd: exec format error"),
    stopped(-1208, "Error", 255, "exec /app: exec format error\n"),
    stopped(-1208, "Error", 1, "standard_init_linux.go:228: exec user process caused: exec format error\n"),
    stopped(-1208, "Error", 1, 'standard_init_linux.go:211: exec user process caused "exec format error"'),
    stopped(-1209, "StartError", 128, RUNC + "container init was OOM-killed (memory limit too low?): unknown"),
    stopped(
        -1210,
        "StartError",
        128,
        RUNC + 'error during container init: error mounting "/data" to rootfs at "/etc": not a directory: unknown',
    ),
    stopped(-1211, "ContainerStatusUnknown", 137, "The container could not be located when the pod was terminated"),
    stopped(-1212, "Unknown", 255),
    stopped(-1213, "seccomp killed", 137, "Used forbidden syscalls: swapoff (3x)"),
    *(stopped(code, "Error", code, names_reason=False) for code in sorted(CONTRACT) if code > 0),
    stopped(137, "Error", 137, 'last words: <a> & "b"\n', names_reason=False),
]


@cache
def classifier() -> Classifier:
    return shipped_config().plan_limits().classifier


def classified(status: Json) -> CompletionStatus:
    """The completion of a Task whose Pod has failed with such a status."""
    metadata = {"namespace": "team-a", "name": "train-worker-3", "uid": "u", "resourceVersion": "1"}
    return classifier().classify(pod_record({"metadata": metadata, "status": {"phase": "Failed", **status}}))


def diagnostics(matched: Json) -> str:
    """How the controller writes that, and clients parse it."""
    text = json.dumps(matched, separators=(",", ":"), ensure_ascii=False)
    for character in "&<>":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f"Pod failed: PodPattern matched: {text}"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_failed_pod(case: Case) -> None:
    found = classified(case.status)
    phrase, attributes = {**CONTRACT, **OURS}[case.code]
    assert (found.code, found.phrase, found.type_name, found.attributes) == (case.code, phrase, "Failed", attributes)
    assert found.diagnostics == diagnostics(case.matched)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case_of_a_reason_does_not_matter(case: Case) -> None:
    status = json.loads(json.dumps(case.status))
    for item in (status, *(container["state"]["terminated"] for container in containers(status))):
        item["reason"] = item.get("reason", "").upper()
    assert classified(status).code == case.code


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_reason_matches_as_a_whole_only(case: Case) -> None:
    """Such a word within another one means something else."""
    status = json.loads(json.dumps(case.status))
    for item in (status, *(container["state"]["terminated"] for container in containers(status))):
        if item.get("reason"):
            item["reason"] = f"Not{item['reason']}Really"
    assert classified(status).code in {*range(-1, 256), -137, -300}


def test_every_code_is_tested() -> None:
    configured = [entry.code for entry in shipped_config().pod_failure_spec if entry.code is not None]
    assert sorted(configured) == sorted({*CONTRACT, *OURS})
    assert {case.code for case in CASES} == set(configured)


@pytest.mark.parametrize("reason", DISRUPTIONS)
def test_the_codes_of_disruptions_are_those_that_ship(reason: str) -> None:
    found = classified({"reason": reason})
    assert Code(found.code, found.phrase, found.type_name, found.attributes) == DISRUPTIONS[reason]


def test_codes_keep_to_their_ranges() -> None:
    for code, (phrase, _) in OURS.items():
        assert code in range(-1199, -1006) if phrase.startswith("Pod") else code in range(-1399, -1204)
    assert not any(code in reserved for code in (*CONTRACT, *OURS) for reserved in RESERVED)


class TestOrder:
    """The first entry that matches wins; the end of the Pod precedes its effects on containers."""

    def test_exit_codes_by_contract_come_first(self) -> None:
        for code in (200, 201, 210):
            assert classified({"reason": "Evicted", **ran("Error", code)}).code == code

    def test_the_end_of_the_pod_before_the_signals_it_brought(self) -> None:
        assert classified({"reason": "Terminated", **ran("Error", 143)}).code == -1007
        assert classified({"reason": "Evicted", **ran("ContainerStatusUnknown", 137)}).code == -1000

    def test_out_of_memory_before_the_signal_it_is(self) -> None:
        assert classified(ran("OOMKilled", 137)).code == -1200

    def test_a_lost_container_before_the_signal_it_is_said_to_have_got(self) -> None:
        assert classified(ran("ContainerStatusUnknown", 137)).code == -1211

    def test_an_init_container_before_the_containers(self) -> None:
        status = ran("Error", 139)
        status["initContainerStatuses"][0]["state"]["terminated"].update(exitCode=139, message="at first")
        assert classified(status).diagnostics == diagnostics(
            {"containers": [{"name": "barrier", "message": "at first", "code": 139}]}
        )


SIGNALS = (130, 131, 132, 134, 135, 136, 137, 139, 141, 143)
KUBERNETES_FIRST = (-1000, -1001, -1002, -1003, -1004, -1005, -1006)
DOCKER_FIRST = (-1200, -1201, -1202, -1203, -1204)
CONSEQUENCES = (*SIGNALS, -1211, -1212)
"""What the end of a Pod does to its containers."""

WEIGHT = {TRANSIENT: 0, NOTHING: 1, PERMANENT: 2}
ALL = {**CONTRACT, **OURS}

EXCEPTIONS: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = [
    ("the contract's order", KUBERNETES_FIRST, tuple(code for code in ALL if code > 0 or code <= -1200)),
    ("the contract's order", (-1201,), (-1202, -1203)),
    ("as -1204 in the contract's order", (-1205, -1210), SIGNALS),
    ("the contract's order", (-1201, -1204), SIGNALS),
    *(("the contract's order", (code,), SIGNALS[SIGNALS.index(code) + 1 :]) for code in (130, 131, 134, 137)),
    (
        "Docker, and not containerd or CRI-O, runs the containers of the Pod",
        DOCKER_FIRST[1:],
        tuple(range(-1213, -1204)),
    ),
    ("the text of -1205 quotes that of the others", (-1205,), (-1206, -1207, -1208)),
    ("its exit code is 137, and 137 stands before these", (-1211,), (139, 141)),
]
"""Why the first codes win over the second ones, though these weigh more."""


def sample(code: int) -> Case:
    return next(case for case in CASES if case.code == code)


def of_two_containers(first: int, second: int) -> Json:
    statuses = []
    for name, code in (("one", first), ("two", second)):
        (status,) = sample(code).status["containerStatuses"]
        statuses.append({**status, "name": name})
    return {"containerStatuses": statuses}


CONTAINER_CODES = [code for code in ALL if code > 0 or code <= -1200]
POD_CODES = [code for code in ALL if -1200 < code < 0]


def hidden_pair(winner: int, one: int, two: int) -> list[tuple[int, int]]:
    """The winner and the code that it hides, if no exception allows that."""
    loser = ({one, two} - {winner}).pop()
    allowed = any(winner in winners and loser in losers for _, winners, losers in EXCEPTIONS)
    return [] if allowed or WEIGHT[ALL[winner][1]] >= WEIGHT[ALL[loser][1]] else [(winner, loser)]


class TestNothingIsHidden:
    """A Pod to which two codes apply has the one that weighs more: Permanent, then counted failures, then Transient."""

    def test_by_another_container(self) -> None:
        hidden = []
        for one, two in itertools.combinations(CONTAINER_CODES, 2):
            winner = classified(of_two_containers(one, two)).code
            assert classified(of_two_containers(two, one)).code == winner
            hidden += hidden_pair(winner, one, two)
        assert hidden == []

    def test_by_the_pod_or_its_container(self) -> None:
        hidden = []
        for pod, container in itertools.product(POD_CODES, CONTAINER_CODES):
            status = {**sample(pod).status, "containerStatuses": sample(container).status["containerStatuses"]}
            winner = classified(status).code
            if container in CONSEQUENCES:
                assert winner == pod
            else:
                hidden += hidden_pair(winner, pod, container)
        assert hidden == []

    def test_each_exception_is_needed(self) -> None:
        for _, winners, losers in EXCEPTIONS:
            pairs = itertools.product(winners, losers)
            assert any(WEIGHT[ALL[winner][1]] < WEIGHT[ALL[loser][1]] for winner, loser in pairs)

    def test_clients_know_this_order(self) -> None:
        known = [entry.code for entry in shipped_config().pod_failure_spec if entry.code in CONTRACT]
        assert known == [*KUBERNETES_FIRST, *DOCKER_FIRST, *SIGNALS]


class TestNotMatched:
    def test_out_of_memory_in_a_container_that_did_well(self) -> None:
        """Some process of it was killed, and it knew how to live with that."""
        status = ran("OOMKilled", 0)
        status["containerStatuses"].append(
            {"name": "sidecar", "state": {"terminated": {"exitCode": 3, "reason": "Error"}}}
        )
        assert classified(status).code == 3

    @pytest.mark.parametrize("code", [1, 2, 125, 126, 127, 128, 129, 133, 138, 140, 142, 144, 192, 255])
    def test_other_exit_codes_stay(self, code: int) -> None:
        found = classified(ran("Error", code))
        assert (found.code, found.phrase, found.attributes) == (code, "ContainerUnrecognizedFailed", ())

    @pytest.mark.parametrize(
        ("code", "message"),
        [
            (1, "loading plugins\nexec /app/plugin: exec format error"),
            (1, "OSError: [Errno 8] Exec format error: '/app/plugin'"),
            (126, "exec /app: exec format error"),
        ],
    )
    def test_a_program_that_reports_the_format_of_another(self, code: int, message: str) -> None:
        assert classified(ran("Error", code, message)).code == code

    def test_a_waiting_container_is_no_failed_one(self) -> None:
        """A container that could not be created is retried by its node forever: its Pod does not fail."""
        status = {
            "containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "StartError", "message": "x"}}}]
        }
        assert classified(status).code == -300

    def test_exit_255_that_the_program_itself_gave(self) -> None:
        assert classified(ran("Error", 255)).code == 255


class TestFile:
    def test_the_defaults_it_shows_are_the_defaults(self) -> None:
        lines = SHIPPED_CONFIG_FILE.read_text().splitlines()
        shown = yaml.safe_load(
            "\n".join(line[1:] for line in lines if re.match(r"#( {2,})?\w+:( \S+| \[[^]]*\])?( +#.*)?$", line))
        )
        assert shown == Config().model_dump(by_alias=True, exclude={"pod_failure_spec"})

    def test_the_rest_of_it_is_the_defaults(self) -> None:
        assert shipped_config().model_copy(update={"pod_failure_spec": []}) == Config()

    def test_every_pattern_shows_the_whole_message_and_its_container(self) -> None:
        for entry in shipped_config().pod_failure_spec:
            for pattern in [] if entry.code is None else entry.pod_patterns:
                regexes = [named.message_regex for named in pattern.containers] or [pattern.message_regex]
                messages = [regex.pattern for regex in regexes if regex is not None]
                assert len(messages) == len(regexes)
                assert all(
                    message == "(?s).*" or re.fullmatch(r"\(\?is\)\^\.\*.*\.\*\$|\(\?i\)\^.*\\s\*\$", message)
                    for message in messages
                )
                assert all(named.name_regex == compile_regex("(?s).*") for named in pattern.containers)

    def test_it_is_as_wide_as_everything_else(self) -> None:
        assert max(map(len, SHIPPED_CONFIG_FILE.read_text().splitlines())) <= 128

"""The configuration file: keys, bounds, defaults and errors."""

import logging
from pathlib import Path

import pytest
import yaml

from frameworkcontroller.api.completion import ContainerCompletion
from frameworkcontroller.api.failurespec import IntRange, PodPattern
from frameworkcontroller.api.historyrecords import SNAPSHOT_TRIGGERS
from frameworkcontroller.api.objects import ContainerRecord, Identity, PodRecord
from frameworkcontroller.api.podgroups import GangScheduler
from frameworkcontroller.config.config import (
    Config,
    ConfigurationError,
    LeaderElection,
    ProgressReports,
    load_config,
    shipped_config,
)
from frameworkcontroller.machine.kernel.model import SnapshotTrigger


def load(tmp_path: Path, text: str) -> Config:
    file = tmp_path / "frameworkcontroller.yaml"
    file.write_text(text)
    return load_config(file, required=True)


def errors(tmp_path: Path, text: str) -> list[str]:
    """The errors of such a file, without its path."""
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, text)
    prefix = f"{tmp_path}/frameworkcontroller.yaml:"
    lines = str(caught.value).split("\n")
    assert all(line.startswith(prefix) for line in lines)
    return [line.removeprefix(prefix) for line in lines]


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "{}", "workerNumber:\nlogObjectSnapshot:\n  pod:\n"])
def test_defaults(tmp_path: Path, text: str) -> None:
    """test_default_config.py has the values."""
    assert load(tmp_path, text) == Config()


def test_absent_file_is_the_shipped_one_unless_it_was_asked_for(tmp_path: Path) -> None:
    absent = tmp_path / "absent.yaml"
    assert load_config(absent, required=False) == shipped_config()
    with pytest.raises(ConfigurationError, match=r"absent\.yaml: no such file"):
        load_config(absent, required=True)


EVERY_KEY = """\
kubeApiServerAddress: https://10.0.0.1:6443
kubeConfigFilePath: ~/.kube/other
kubeClientQps: 200
kubeClientBurst: 300
namespace: jobs
leaderElection:
  enabled: true
  leaseName: fc.example
  leaseNamespace: kube-system
  leaseDurationSec: 60
  renewDeadlineSec: 40
  retryPeriodSec: 5
  lockFile: /run/fc/lock
workerNumber: 500
largeFrameworkCompression: true
webAddress: 127.0.0.1:9999
webDebug: true
crdEstablishedCheckIntervalSec: 2
crdEstablishedCheckTimeoutSec: 10
objectLocalCacheCreationTimeoutSec: 60
frameworkCompletedRetainSec: 2147483600
frameworkMinRetryDelaySecForTransientConflictFailed: 0
frameworkMaxRetryDelaySecForTransientConflictFailed: 0
taskMinRetryDelaySec: 5
taskMaxRetryDelaySec: 50
gangScheduler: volcano
gangSchedulerName: my-volcano
logObjectSnapshot:
  framework: {onFrameworkRetry: false, onFrameworkDeletion: false}
  task: {onTaskRetry: false, onTaskDeletion: false}
  pod: {onPodDeletion: false}
recordEvents: false
history:
  sink: http
  url: https://archive.example:8443/v1/records?tenant=a
  path: /var/lib/history
  triggers: [OnTaskRetry, OnPodDeletion, OnTaskRetry]
  onUnavailable: Drop
  maxPendingBytes: 1048576
  tokenFile: /var/run/token
  caFile: ca.pem
  cluster: east 1
  logs: {keep: All, tailBytes: 1024, captureSeconds: 3, concurrency: 2}
kueue: {mode: enabled}
progressReports: {bindAddress: ":10281", url: "https://reports.example:8443"}
podFailureSpec: []
"""


def test_every_key(tmp_path: Path) -> None:
    config = load(tmp_path, EVERY_KEY)
    given = yaml.safe_load(EVERY_KEY)
    assert given.keys() == {field.alias for field in Config.model_fields.values()}
    assert config.model_dump(by_alias=True, mode="json") == given
    assert config.snapshot_triggers() == set()
    assert Config().snapshot_triggers() == SNAPSHOT_TRIGGERS - {SnapshotTrigger.FRAMEWORK_COMPLETION}
    limits = config.plan_limits()
    assert limits.object_local_cache_creation_timeout_sec == 60
    assert limits.framework_completed_retain_sec == 2147483600
    assert limits.framework_min_retry_delay_sec_for_transient_conflict_failed == 0
    assert limits.framework_max_retry_delay_sec_for_transient_conflict_failed == 0
    assert (limits.task_min_retry_delay_sec, limits.task_max_retry_delay_sec) == (5, 50)
    assert (limits.kueue, Config().plan_limits().kueue) == (True, False)
    assert (limits.gang_scheduler, limits.gang_scheduler_name) == (GangScheduler.VOLCANO, "my-volcano")
    assert limits.history == {SnapshotTrigger.TASK_RETRY, SnapshotTrigger.POD_DELETION}
    assert not limits.history_blocks


@pytest.mark.parametrize(
    ("text", "triggers", "blocks"),
    [
        ("", set(), False),
        ("{onUnavailable: Block, url: 'http://h/', triggers: [OnTaskRetry]}", set(), False),
        ("{sink: file, path: /history}", set(SNAPSHOT_TRIGGERS), True),
        ("{sink: http, url: 'http://h', onUnavailable: Drop}", set(SNAPSHOT_TRIGGERS), False),
    ],
)
def test_only_a_sink_makes_a_history(
    tmp_path: Path, text: str, triggers: set[SnapshotTrigger], *, blocks: bool
) -> None:
    limits = load(tmp_path, f"history: {text}").plan_limits()
    assert limits.history == triggers
    assert limits.history_blocks == blocks


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("kubeClientQps: 0.1", 0.1),
        ("kubeClientQps: 10000", 10000),
        ("kubeClientBurst: 0", 0),
        ("kubeClientBurst: 10000", 10000),
        ("workerNumber: 1", 1),
        ("workerNumber: 300.0", 300),
        ("workerNumber: 1e3", 1000),
        ("kubeClientQps: 1.e+2", 100.0),
        ("kubeClientBurst: +3.00", 3),
        ("frameworkCompletedRetainSec: -1", -1),
        ('kubeApiServerAddress: ""', ""),
        ('webAddress: ""', ""),
        ("webAddress: 0", ""),
        ('webAddress: "0"', "0"),
        ("kubeApiServerAddress: http://localhost:8080/", "http://localhost:8080/"),
    ],
)
def test_bounds_are_within(tmp_path: Path, text: str, value: object) -> None:
    assert load(tmp_path, text).model_dump(by_alias=True)[text.partition(":")[0]] == value


ADDRESS = "must be http[s]://host:port"
URL = "must be like https://host:port/path"
BIND = 'must be host:port, :port for every address of this machine, or "" for none'


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("kubeApiServerAddress: 10.0.0.1:8080", f"1: kubeApiServerAddress: '10.0.0.1:8080': {ADDRESS}"),
        ("kubeApiServerAddress: ftp://h:1", f"1: kubeApiServerAddress: 'ftp://h:1': {ADDRESS}"),
        ("kubeApiServerAddress: 10", "1: kubeApiServerAddress: 10: must be text (put it in quotes)"),
        ("kubeConfigFilePath: [a]", "1: kubeConfigFilePath: a list: must be text (put it in quotes)"),
        ("kubeClientQps: 0", "1: kubeClientQps: 0: must be above 0.0"),
        ("kubeClientQps: 10000.5", "1: kubeClientQps: 10000.5: must be at most 10000.0"),
        ("kubeClientQps: .nan", "1: kubeClientQps: nan: must be a finite number"),
        ("kubeClientQps: fast", "1: kubeClientQps: 'fast': must be a number"),
        ("kubeClientQps: yes", "1: kubeClientQps: true: must be a number"),
        ("kubeClientQps: {}", "1: kubeClientQps: a mapping: must be a number"),
        ("kubeClientBurst: -1", "1: kubeClientBurst: -1: must be at least 0"),
        ("kubeClientBurst: 10001", "1: kubeClientBurst: 10001: must be at most 10000"),
        ("kubeClientBurst: 1.5", "1: kubeClientBurst: 1.5: must be a whole number"),
        ("webAddress: 8080", "1: webAddress: 8080: must be text (put it in quotes)"),
        ("webAddress: true", "1: webAddress: true: must be text (put it in quotes)"),
        ("webAddress: localhost", f"1: webAddress: 'localhost': {BIND}"),
        ("webAddress: 'http://localhost:80'", f"1: webAddress: 'http://localhost:80': {BIND}"),
        ("webAddress: ':70000'", "1: webAddress: ':70000': must have a port of at most 65535"),
        ("webDebug: 1", "1: webDebug: 1: must be true or false"),
        ("workerNumber: 0", "1: workerNumber: 0: must be above 0"),
        ("workerNumber: 300.5", "1: workerNumber: 300.5: must be a whole number"),
        ("workerNumber: '300'", "1: workerNumber: '300': must be a whole number"),
        ("workerNumber: 1e400", "1: workerNumber: inf: must be a whole number"),
        ("crdEstablishedCheckIntervalSec: 0.0", "1: crdEstablishedCheckIntervalSec: 0: must be at least 1"),
        ("workerNumber: ten", "1: workerNumber: 'ten': must be a whole number"),
        ("workerNumber: true", "1: workerNumber: true: must be a whole number"),
        ("largeFrameworkCompression: 1", "1: largeFrameworkCompression: 1: must be true or false"),
        ("crdEstablishedCheckIntervalSec: 0", "1: crdEstablishedCheckIntervalSec: 0: must be at least 1"),
        ("crdEstablishedCheckTimeoutSec: 9", "1: crdEstablishedCheckTimeoutSec: 9: must be at least 10"),
        ("objectLocalCacheCreationTimeoutSec: 59", "1: objectLocalCacheCreationTimeoutSec: 59: must be at least 60"),
        ("frameworkCompletedRetainSec: 1w", "1: frameworkCompletedRetainSec: '1w': must be a whole number"),
        (
            "frameworkMinRetryDelaySecForTransientConflictFailed: -1",
            "1: frameworkMinRetryDelaySecForTransientConflictFailed: -1: must be at least 0",
        ),
        (
            "frameworkMaxRetryDelaySecForTransientConflictFailed: 59",
            "1: frameworkMaxRetryDelaySecForTransientConflictFailed: 59: "
            "must not be below frameworkMinRetryDelaySecForTransientConflictFailed (60)",
        ),
        ("taskMinRetryDelaySec: -1", "1: taskMinRetryDelaySec: -1: must be at least 0"),
        (
            "gangScheduler: slurm",
            "1: gangScheduler: 'slurm': must be auto, kubernetes, volcano or coscheduling",
        ),
        (
            "taskMaxRetryDelaySec: 9",
            "1: taskMaxRetryDelaySec: 9: must not be below taskMinRetryDelaySec (10)",
        ),
        ("namespace: Jobs", "1: namespace: 'Jobs': must be a DNS name: lower-case letters, digits and '-'"),
        (f"namespace: {'n' * 64}", f"1: namespace: '{'n' * 64}': must not be longer than 63 characters"),
        ("leaderElection: on", "1: leaderElection: true: must be a mapping"),
        ("leaderElection:\n  enable: true", "2: leaderElection.enable: unknown key; did you mean enabled?"),
        (
            "leaderElection:\n  leaseName: a_b",
            "2: leaderElection.leaseName: 'a_b': must be a DNS name: lower-case letters, digits and '-'",
        ),
        ("leaderElection:\n  lockFile: lock", "2: leaderElection.lockFile: 'lock': must be an absolute path"),
        (
            "leaderElection:\n  renewDeadlineSec: 15",
            "2: leaderElection.renewDeadlineSec: 15: must be below leaseDurationSec (15)",
        ),
        (
            "leaderElection:\n  retryPeriodSec: 9",
            "2: leaderElection.retryPeriodSec: 9: must be below renewDeadlineSec (10) divided by 1.2",
        ),
        ("leaderElection:\n  retryPeriodSec: 0", "2: leaderElection.retryPeriodSec: 0: must be at least 1"),
        ("history: none", "1: history: 'none': must be a mapping"),
        ("history:\n  sink: kafka", "2: history.sink: 'kafka': must be none, file or http"),
        ("history:\n  sink: http\n  url: ''", "3: history.url: '': is required for the sink http"),
        ("history:\n  url: ftp://h/x", f"2: history.url: 'ftp://h/x': {URL}"),
        ("history:\n  url: 'http:///x'", f"2: history.url: 'http:///x': {URL}"),
        (
            "history:\n  url: 'http://h:x/'",
            f"2: history.url: 'http://h:x/': {URL}: Port could not be cast to integer value as 'x'",
        ),
        ("history:\n  url: 'http://h/#a'", f"2: history.url: 'http://h/#a': {URL}"),
        ("history:\n  url: 'http://h/a b'", f"2: history.url: 'http://h/a b': {URL}"),
        (
            "history:\n  url: 'http://u:p@h/'",
            "2: history.url: 'http://u:p@h/': must not contain credentials, which would be logged: use tokenFile",
        ),
        ("history:\n  sink: file\n  path: ''", "3: history.path: '': is required for the sink file"),
        ("history:\n  path: history", "2: history.path: 'history': must be an absolute path"),
        (
            "history:\n  triggers: [OnTuesday]",
            "2: history.triggers[0]: 'OnTuesday': must be OnFrameworkCompletion, "
            "OnFrameworkRetry, OnFrameworkDeletion, OnTaskRetry, OnTaskDeletion or OnPodDeletion",
        ),
        (
            "history:\n  triggers: [OnTaskRetry, OnPodLog]",
            "2: history.triggers[1]: 'OnPodLog': must be OnFrameworkCompletion, "
            "OnFrameworkRetry, OnFrameworkDeletion, OnTaskRetry, OnTaskDeletion or OnPodDeletion",
        ),
        ("history:\n  triggers: []", "2: history.triggers: a list: must have at least 1 item"),
        ("history:\n  triggers: OnTaskRetry", "2: history.triggers: 'OnTaskRetry': must be a list"),
        ("history:\n  onUnavailable: Wait", "2: history.onUnavailable: 'Wait': must be Block or Drop"),
        ("history:\n  maxPendingBytes: 1048575", "2: history.maxPendingBytes: 1048575: must be at least 1048576"),
        (
            "history:\n  url: 'http://h/'\n  caFile: ca.pem",
            "3: history.caFile: 'ca.pem': has no use: history.url is not https",
        ),
        ('history:\n  cluster: "a\\nb"', "2: history.cluster: 'a\\nb': must be printable text"),
        ("kueue:\n  mode: auto", "2: kueue.mode: 'auto': must be disabled or enabled"),
        (
            "progressReports:\n  bindAddress: 10281",
            "2: progressReports.bindAddress: 10281: must be text (put it in quotes)",
        ),
        (
            "progressReports:\n  bindAddress: x",
            "2: progressReports.bindAddress: 'x': must be host:port, :port for every address of this machine, or "
            '"" for none',
        ),
        (
            "progressReports:\n  url: http://reports:1",
            "2: progressReports.url: 'http://reports:1': must be https://host:port",
        ),
        ("progressReports:\n  url: reports", "2: progressReports.url: 'reports': must be https://host:port"),
        ("logObjectSnapshot: true", "1: logObjectSnapshot: true: must be a mapping"),
        (
            "logObjectSnapshot:\n  framework:\n    onFrameworkRetry: 'no'",
            "3: logObjectSnapshot.framework.onFrameworkRetry: 'no': must be true or false",
        ),
        (
            "logObjectSnapshot:\n  framework:\n    onTaskRetry: false",
            "3: logObjectSnapshot.framework.onTaskRetry: unknown key",
        ),
        (
            "\nworkerNumbr: 5",
            "2: workerNumbr: unknown key; did you mean workerNumber?",
        ),
        ("workerNumbr:", "1: workerNumbr: unknown key; did you mean workerNumber?"),
        ("worker_number: 5", "1: worker_number: unknown key; did you mean workerNumber?"),
        ("7: seven", "1: 7: unknown key"),
        ("workerNumber: 5\nworkerNumber: 6", "1: workerNumber: is repeated on line 2"),
        ("- a\n- b", "1: must be a mapping, not a list"),
        ("just text", "1: must be a mapping, not 'just text'"),
        ("a: b: c", "1: is not YAML: mapping values are not allowed here"),
        ("\n\ta: b", "2: is not YAML: found character '\\t' that cannot start any token"),
        ("a: *nobody", "1: is not YAML: found undefined alias 'nobody'"),
        ("podFailureSpec: {}", "1: podFailureSpec: a mapping: must be a list"),
    ],
)
def test_bad_values(tmp_path: Path, text: str, error: str) -> None:
    assert errors(tmp_path, text) == [error]


def test_a_sink_without_its_address(tmp_path: Path) -> None:
    (error,) = errors_anywhere(tmp_path, "history: {sink: http}")
    assert "history.url: '': is required for the sink http" in error
    (error,) = errors_anywhere(tmp_path, "history: {sink: file}")
    assert "history.path: '': is required for the sink file" in error


def test_default_maximum_is_checked_against_a_given_minimum(tmp_path: Path) -> None:
    (error,) = errors_anywhere(tmp_path, "frameworkMinRetryDelaySecForTransientConflictFailed: 901")
    assert error == (
        "frameworkMaxRetryDelaySecForTransientConflictFailed: 900: "
        "must not be below frameworkMinRetryDelaySecForTransientConflictFailed (901)"
    )


def test_default_deadline_is_checked_against_a_given_duration(tmp_path: Path) -> None:
    (error,) = errors_anywhere(tmp_path, "leaderElection: {leaseDurationSec: 10}")
    assert error == "leaderElection.renewDeadlineSec: 10: must be below leaseDurationSec (10)"


def test_where_the_lease_is() -> None:
    given = Config(leader_election=LeaderElection(lease_namespace="a"), namespace="c")
    assert given.lease_namespace("b") == "a"
    assert Config(namespace="c").lease_namespace("b") == "b"
    assert Config(namespace="c").lease_namespace(None) == "c"
    with pytest.raises(ConfigurationError, match=r"leaderElection\.leaseNamespace is required"):
        Config().lease_namespace(None)


def errors_anywhere(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, text)
    return [line.partition(": ")[2] for line in str(caught.value).split("\n")]


def test_all_errors_are_reported_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = """\
workerNumber: 0
podFailureSpec:
- code: 5
  podPatterns: [{}]
- code: 5
  phrase: [x]
  podPatterns: [{reasonRegex: '('}]
bogus: 1
kubeClientBurst: -1
"""
    assert errors(tmp_path, text) == [
        "1: workerNumber: 0: must be above 0",
        "5: podFailureSpec[1].code: 5: is already the code of podFailureSpec[0]",
        "6: podFailureSpec[1].phrase: a list: must be text (put it in quotes)",
        "7: podFailureSpec[1].podPatterns[0].reasonRegex: '(': is not a valid RE2 expression: missing ): (",
        "8: bogus: unknown key",
        "9: kubeClientBurst: -1: must be at least 0",
    ]


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: Is a directory"):
        load_config(tmp_path, required=False)
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"phrase: caf\xe9\n")
    with pytest.raises(ConfigurationError, match=r"is not UTF-8 text \(byte 11\)"):
        load_config(latin, required=True)


@pytest.mark.parametrize("text", ["podFailureSpec: &a [*a]", "a: " + "[" * 5000])
def test_file_without_a_bottom(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"podFailureSpec|nested too deeply"):
        load(tmp_path, text)


# --- podFailureSpec ---


def test_the_shipped_list_can_be_kept(tmp_path: Path) -> None:
    config = load(tmp_path, "workerNumber: 3\npodFailureSpec: shipped")
    assert config.pod_failure_spec == shipped_config().pod_failure_spec
    assert config.worker_number == 3


def entry(rest: str, code: str = "-1000", patterns: str = "podPatterns: [{}]") -> str:
    lines = "".join(f"  {line}\n" for line in (rest, patterns) if line)
    return f"podFailureSpec:\n- code: {code}\n{lines}"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("podFailureSpec:\n- podPatterns: [{}]", "2: podFailureSpec[0].code: is required"),
        ("podFailureSpec:\n- code: 5", "2: podFailureSpec[0].podPatterns: is required"),
        ("podFailureSpec:\n- code: 5\n- ", "2: podFailureSpec[0].podPatterns: is required"),
        ("podFailureSpec: [null]", "1: podFailureSpec[0]: null: must be a mapping"),
        (entry("", patterns="podPatterns: []"), "3: podFailureSpec[0].podPatterns: a list: must have at least 1 item"),
        (entry("", code="-999"), "2: podFailureSpec[0].code: -999: is within the reserved codes -999 to 0"),
        (entry("", code="0"), "2: podFailureSpec[0].code: 0: is within the reserved codes -999 to 0"),
        (entry("", code="200"), "2: podFailureSpec[0].code: 200: is within the reserved codes 200 to 219"),
        (entry("", code="219"), "2: podFailureSpec[0].code: 219: is within the reserved codes 200 to 219"),
        (entry("", code="2147483648"), "2: podFailureSpec[0].code: 2147483648: must be at most 2147483647"),
        (entry("", code="'5'"), "2: podFailureSpec[0].code: '5': must be a whole number"),
        (
            entry("type: {name: Succeeded}"),
            "3: podFailureSpec[0].type.name: 'Succeeded': must be Failed: only failed Pods are classified",
        ),
        (entry("type: {attributes: Transient}"), "3: podFailureSpec[0].type.attributes: 'Transient': must be a list"),
        (
            entry("type: {attribute: [Transient]}"),
            "3: podFailureSpec[0].type.attribute: unknown key; did you mean attributes?",
        ),
        (
            entry("", patterns="podPatterns: [{reasonRegexp: x}]"),
            "3: podFailureSpec[0].podPatterns[0].reasonRegexp: unknown key; did you mean reasonRegex?",
        ),
        (
            entry("", patterns="podPatterns: [{messageRegex: '(?<=a)b'}]"),
            "3: podFailureSpec[0].podPatterns[0].messageRegex: '(?<=a)b': "
            "is not a valid RE2 expression: invalid perl operator: (?<=",
        ),
        (
            entry("", patterns="podPatterns:\n  - {}\n  - containers:\n    - {}\n    - nameRegex: '['"),
            "7: podFailureSpec[0].podPatterns[1].containers[1].nameRegex: '[': "
            "is not a valid RE2 expression: missing ]: [",
        ),
        (
            entry("", patterns="podPatterns: [{containers: [{codeRange: {min: 5, max: 4}}]}]"),
            "3: podFailureSpec[0].podPatterns[0].containers[0].codeRange.max: 4: must not be below min (5)",
        ),
        (
            entry("", patterns="podPatterns: [{containers: [{signalRange: 9}]}]"),
            "3: podFailureSpec[0].podPatterns[0].containers[0].signalRange: 9: must be a mapping",
        ),
    ],
)
def test_bad_failure_entries(tmp_path: Path, text: str, error: str) -> None:
    assert errors(tmp_path, text)[0] == error


def test_compiled_failure_entries(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        """
        podFailureSpec:
        - code: -1000
          phrase: PodEvicted
          type:
            attributes: [Transient]
          podPatterns:
          - reasonRegex: '(?i)^evicted$'
            messageRegex: ''
            containers:
            - nameRegex: '(?ms).*'
              codeRange: {min: 1}
              signalRange: {}
            - signalRange: {min: 9, max: 9}
              codeRange:
          - {}
        - code: 130
          type: {name: Failed, attributes: []}
          podPatterns: [{containers: [{codeRange: {max: 130}}]}]
        - code: 131
          type: {name: ''}
          podPatterns: [{}]
        """,
    )
    evicted, interrupted, bare = config.pod_failure_spec
    assert (evicted.code, evicted.phrase, evicted.type.name) == (-1000, "PodEvicted", "Failed")
    assert evicted.completion_code.attributes == ("Transient",)
    pattern, anything = evicted.pod_patterns
    assert pattern.reason_regex is not None
    assert pattern.reason_regex.search("EVICTED").group() == "EVICTED"
    assert pattern.reason_regex.search("it was evicted") is None
    assert (pattern.name_regex, pattern.message_regex) == (None, None)
    first, second = pattern.containers
    assert first.name_regex is not None
    assert first.name_regex.search("a\nb").group() == "a\nb"
    assert (first.reason_regex, first.message_regex) == (None, None)
    assert (first.signal_range, first.code_range) == (IntRange(), IntRange(min=1))
    assert (second.signal_range, second.code_range) == (IntRange(min=9, max=9), IntRange())
    assert anything == PodPattern()
    assert interrupted.completion_code.attributes == ()
    assert interrupted.pod_patterns[0].containers[0].code_range == IntRange(max=130)
    assert (bare.completion_code.type_name, bare.completion_code.attributes, bare.phrase) == ("Failed", None, "")


def test_configured_classes_classify(tmp_path: Path) -> None:
    text = entry("phrase: Oom", patterns="podPatterns: [{containers: [{reasonRegex: '(?i)oom', codeRange: {min: 1}}]}]")
    pod = PodRecord(
        key="default/f-r-0",
        namespace="default",
        name="f-r-0",
        resource_version="1",
        identity=Identity("uid", None, None, False),
        phase="Failed",
        containers=(ContainerRecord(ContainerCompletion("main", 137, "OOMKilled"), True, ""),),
    )
    completion = load(tmp_path, text).plan_limits().classifier.classify(pod)
    assert (completion.code, completion.phrase, completion.attributes) == (-1000, "Oom", None)
    assert completion.diagnostics == ('Pod failed: PodPattern matched: {"containers":[{"reason":"OOM","code":137}]}')


def test_an_unknown_attribute_is_accepted_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        config = load(tmp_path, entry("type: {attributes: [Transiet, Permanent]}"))
    assert config.pod_failure_spec[0].type.attributes == ["Transiet", "Permanent"]
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path}/frameworkcontroller.yaml:3: podFailureSpec[0].type.attributes: 'Transiet': "
        "is ignored by all retry policies; did you mean Transient?"
    ]


def test_the_address_for_pods() -> None:
    assert ProgressReports().address is None
    in_cluster = ProgressReports(bind_address=":10281")
    assert in_cluster.url_in("fc") == "https://frameworkcontroller-progress.fc.svc"
    assert ProgressReports(bind_address="127.0.0.1:0").url_in("fc") is None
    assert ProgressReports(bind_address=":1", url="https://there:2").url_in("fc") == "https://there:2"

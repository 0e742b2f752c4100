"""Paths, options, selectors and Accept headers, as text."""

import pytest

from frameworkcontroller.local.apiserver.api_errors import ApiStatusError
from frameworkcontroller.local.apiserver.http_bodies import parse_yaml, split_target, warning_header
from frameworkcontroller.local.apiserver.options import (
    ContinueToken,
    boolean,
    delete_options,
    list_options,
    write_call,
)
from frameworkcontroller.local.apiserver.paths import ResourcePath, parse_resource_path
from frameworkcontroller.local.apiserver.representations import Form, negotiate
from frameworkcontroller.local.apiserver.selectors import SelectorError, parse_fields, parse_labels


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1/pods", ResourcePath("", "v1", "pods")),
        ("/api/v1/namespaces/n/pods/p/status", ResourcePath("", "v1", "pods", "n", "p", "status")),
        ("/api/v1/namespaces", ResourcePath("", "v1", "namespaces")),
        ("/api/v1/namespaces/n", ResourcePath("", "v1", "namespaces", name="n")),
        ("/api/v1/namespaces/n/finalize", ResourcePath("", "v1", "namespaces", name="n", subresource="finalize")),
        ("/api/v1/namespaces/n/pods", ResourcePath("", "v1", "pods", "n")),
        ("/apis/g/v1/namespaces/n/things/a%2Fb/", ResourcePath("g", "v1", "things", "n", "a/b")),
        ("/apis/g/v1/things/t/proxy/x/y", ResourcePath("g", "v1", "things", "", "t", "proxy/x/y")),
        ("/api/v1/watch/namespaces/n/pods", ResourcePath("", "v1", "pods", "n", watch=True)),
        ("/api/v1", None),
        ("/api", None),
        ("/apis/g/v1", None),
        ("/apis/g", None),
        ("/healthz", None),
        ("/api/v1/namespaces//pods", None),
    ],
)
def test_paths(path: str, expected: ResourcePath | None) -> None:
    assert parse_resource_path(path) == expected


def test_query_strings() -> None:
    path, query = split_target("/p?a=1&a=2&b&c=%2F%2B+")
    assert (path, query) == ("/p", {"a": ["1", "2"], "b": [""], "c": ["/+ "]})


@pytest.mark.parametrize(
    ("query", "expected"),
    [({}, False), ({"w": [""]}, True), ({"w": ["true"]}, True), ({"w": ["no"]}, True), ({"w": ["0"]}, False)],
)
def test_booleans(query: dict[str, list[str]], expected: bool) -> None:
    assert boolean(query, "w") is expected


def test_continue_tokens() -> None:
    token = ContinueToken(7, "n/a")
    assert ContinueToken.decode(token.encode()) == token
    assert "=" not in token.encode()
    for text in ("!", "e30", "eyJ2IjoidjkiLCJydiI6MSwic3RhcnQiOiJ4In0", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MH0"):
        with pytest.raises(ApiStatusError, match="continue key is not valid"):
            ContinueToken.decode(text)


def test_the_body_of_a_delete_wins() -> None:
    options, dry_run = delete_options(
        {"gracePeriodSeconds": ["5"], "propagationPolicy": ["Orphan"]}, b'{"gracePeriodSeconds": 0, "dryRun": ["All"]}'
    )
    assert (options.grace_period_seconds, options.propagation, dry_run) == (0, None, True)
    options, dry_run = delete_options({"gracePeriodSeconds": ["5"], "propagationPolicy": ["Orphan"]}, b"")
    assert (options.grace_period_seconds, options.propagation, dry_run) == (5, "Orphan", False)
    options, _ = delete_options({}, b'{"orphanDependents": false, "preconditions": {"uid": "u"}}')
    assert (options.propagation, options.uid, options.orphan_dependents) == ("Background", "u", False)
    for body in (b"x", b"[]", b'{"kind": "Pod"}', b'{"gracePeriodSeconds": "5"}', b'{"preconditions": 1}'):
        with pytest.raises(ApiStatusError):
            delete_options({}, body)


def test_list_options() -> None:
    options = list_options({"resourceVersion": ["7"], "limit": ["-1"], "timeoutSeconds": ["0"]})
    assert (options.version, options.limit, options.timeout, options.initial_events) == (7, 0, None, None)
    streaming = {"watch": ["1"], "sendInitialEvents": ["true"], "resourceVersionMatch": ["NotOlderThan"]}
    assert list_options(streaming).initial_events is True
    for wrong in (
        {"watch": ["1"], "sendInitialEvents": ["true"]},
        {"sendInitialEvents": ["true"]},
        {"resourceVersion": ["7"], "resourceVersionMatch": ["Odd"]},
    ):
        with pytest.raises(ApiStatusError) as refused:
            list_options(wrong)
        assert refused.value.code == 422
    with pytest.raises(ApiStatusError) as refused:
        list_options({"resourceVersion": ["x"]})
    assert refused.value.code == 500


def test_who_writes() -> None:
    assert write_call("create", "kubectl/v1.30 (linux)", {}, "CreateOptions").manager == "kubectl"
    named = write_call("create", "x/1", {"fieldManager": ["me"], "fieldValidation": ["Strict"]}, "CreateOptions")
    assert (named.manager, named.explicit_manager, named.validation) == ("me", True, "Strict")
    with pytest.raises(ApiStatusError, match="fieldValidation"):
        write_call("create", "x", {"fieldValidation": ["Odd"]}, "CreateOptions")


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        ("=", "found '=', expected: !, identifier, or 'end of string'"),
        ("a in", "unable to parse requirement: found '' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a b", "unable to parse requirement: found 'b', expected: '=', '!=', '==', 'in', notin'"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a>x", "unable to parse requirement: for 'Gt', 'Lt' operators, the value must be an integer"),
        (
            "a=" + "v" * 64,
            'unable to parse requirement: invalid label value: "vvvvvvvvvv',
        ),
        ("/a=b", 'unable to parse requirement: invalid label key "/a"'),
    ],
)
def test_label_selectors_in_the_real_servers_words(selector: str, message: str) -> None:
    with pytest.raises(SelectorError) as refused:
        parse_labels(selector)
    assert str(refused.value).startswith(message)


def test_field_selectors() -> None:
    terms = parse_fields(r"a=b,c!=d,e==f\,g\=h\\i,j=,k=x=y")
    assert [(one.field, one.equal, one.value) for one in terms] == [
        ("a", True, "b"),
        ("c", False, "d"),
        ("e", True, "f,g=h\\i"),
        ("j", True, ""),
        ("k", True, "x=y"),
    ]
    assert parse_fields("") == []
    with pytest.raises(SelectorError, match="invalid selector: 'a'; can't understand 'a'"):
        parse_fields("a")


@pytest.mark.parametrize(
    ("accept", "form", "media_type"),
    [
        ("", Form.FULL, "application/json"),
        ("*/*", Form.FULL, "application/json"),
        ("application/yaml", Form.FULL, "application/yaml"),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Form.TABLE, "application/json"),
        ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", Form.FULL, "application/json"),
        ("application/vnd.kubernetes.protobuf,application/json", Form.FULL, "application/json"),
        ("application/yaml;q=0.5,application/json", Form.FULL, "application/json"),
        ("text/html, application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", Form.METADATA, "application/json"),
    ],
)
def test_the_form_that_a_client_accepts(accept: str, form: Form, media_type: str) -> None:
    view = negotiate(accept)
    assert (view.form, view.media_type) == (form, media_type)


@pytest.mark.parametrize("accept", ["application/xml", "application/json;as=Foo;v=v1;g=meta.k8s.io"])
def test_an_unsupported_form(accept: str) -> None:
    with pytest.raises(ApiStatusError) as refused:
        negotiate(accept)
    assert refused.value.code == 406


def test_yaml_is_read_as_the_api_reads_it() -> None:
    assert parse_yaml(b"a: 2001-01-01T00:00:00Z\nb: 010\nc: [x, {d: true}]") == {
        "a": "2001-01-01T00:00:00Z",
        "b": 8,
        "c": ["x", {"d": True}],
    }
    assert parse_yaml(b'{"a": 1}') == {"a": 1}
    assert parse_yaml(b"2: a\ntrue: b") == {"2": "a", "true": "b"}
    with pytest.raises(ApiStatusError, match="aliases are not supported"):
        parse_yaml(b"a: &x [1]\nb: [*x, *x]")
    with pytest.raises(ApiStatusError, match="error converting YAML to JSON"):
        parse_yaml(b"a: [")
    with pytest.raises(ApiStatusError):
        parse_yaml(b"!!python/object:os.system x")


def test_a_warning_stays_on_its_line() -> None:
    assert warning_header('unknown "a"\r\nSet-Cookie: x') == '299 - "unknown \\"a\\" Set-Cookie: x"'

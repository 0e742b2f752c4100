import orjson
import pytest

from frameworkcontroller.kube import errors

NOW = 1_767_225_600.0  # 2026-01-01T00:00:00Z


def status(code: int, reason: str = "", **extra: object) -> bytes:
    return orjson.dumps({"kind": "Status", "status": "Failure", "code": code, "reason": reason, **extra})


def refused(code: int, body: bytes, **headers: str) -> errors.ApiError:
    return errors.error_from_answer(
        code,
        body,
        {name.replace("_", "-"): value for name, value in headers.items()},
        request="GET http://server/api",
        now=NOW,
    )


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", errors.ApiError),
        (401, "Unauthorized", errors.ApiError),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (405, "MethodNotAllowed", errors.ApiError),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (410, "Expired", errors.ResourceExpired),
        (410, "Gone", errors.ResourceExpired),
        (413, "RequestEntityTooLarge", errors.TooLarge),
        (415, "UnsupportedMediaType", errors.ApiError),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", errors.ApiServerError),
        (503, "ServiceUnavailable", errors.ApiServerError),
        (504, "Timeout", errors.ApiServerError),
        (418, "Teapot", errors.ApiError),
    ],
)
def test_code_and_reason_choose_the_class(code: int, reason: str, kind: type[errors.ApiError]) -> None:
    error = refused(code, status(code, reason, message="the server's words"))
    assert type(error) is kind
    assert (error.code, error.reason, str(error)) == (code, reason, "the server's words")
    assert error.status["reason"] == reason


def test_only_a_404_that_names_an_object_says_that_it_is_gone() -> None:
    named = refused(404, status(404, "NotFound", details={"name": "p", "kind": "pods"}))
    assert type(named) is errors.ObjectNotFound
    assert named.is_of_api
    assert type(refused(404, status(404, "NotFound", details={}))) is errors.NotFound
    page = refused(404, b"404 page not found")
    assert type(page) is errors.NotFound
    assert not page.is_of_api


def test_an_expired_version_within_a_watch_is_gone_with_any_code() -> None:
    assert isinstance(errors.error_from_status({"reason": "Expired", "code": 500}), errors.ResourceExpired)


def test_the_http_code_wins_over_the_bodys() -> None:
    assert type(refused(503, status(404, "NotFound"))) is errors.ApiServerError


def test_details_and_causes() -> None:
    causes = [{"reason": "ResourceVersionTooLarge", "message": "…"}, "not a mapping"]
    error = refused(504, status(504, "Timeout", details={"causes": causes}))
    assert error.details == {"causes": causes}
    assert error.has_cause("ResourceVersionTooLarge")
    assert not error.has_cause("FieldValueInvalid")


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>Bad Gateway</html>", b'"text"', b"[1]", b'{"kind":"Pod"}', b'{"kind":"Status"', b"\xff\xfe\x00"],
)
def test_answers_of_proxies_are_quoted_with_the_request(body: bytes) -> None:
    error = refused(502, body)
    assert type(error) is errors.ApiServerError
    assert error.reason == ""
    assert str(error).startswith("GET http://server/api: answered 502 with no Kubernetes status: ")
    assert error.status["kind"] == "Status"


def test_long_answers_of_proxies_are_shortened() -> None:
    assert len(str(refused(502, b"x" * 100_000))) < 500


def test_a_redirect_to_undecodable_text_can_be_logged() -> None:
    # As aiohttp decodes a header that is not UTF-8.
    error = refused(302, b"", Location="http://caf\udce9/")
    assert orjson.loads(orjson.dumps(error.status))["message"] == str(error)


def test_a_redirect_says_where_it_leads() -> None:
    error = refused(302, b"", Location="https://login.example/")
    assert type(error) is errors.ApiError
    assert "redirect to https://login.example/" in str(error)


def test_mistyped_status_fields_do_no_harm() -> None:
    body = {"kind": "Status", "code": "x", "reason": 5, "message": None, "details": [1]}
    error = refused(422, orjson.dumps(body))
    assert (type(error), error.reason, error.details) == (errors.Invalid, "", {})
    assert errors.error_from_status(body).code == 500


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        (" 7 ", 7.0),
        ("0", 0.0),
        ("Thu, 01 Jan 2026 00:00:30 GMT", 30.0),
        ("Wed, 31 Dec 2025 00:00:00 GMT", 0.0),
        ("-3", None),
        ("soon", None),
        ("", None),
        ("9" * 400, 300.0),
        ("3600", 300.0),
        ("Fri, 02 Jan 2026 00:00:00 GMT", 300.0),
        ("Thu, 01 Jan 99999999999 00:00:00 GMT", None),
        ("Thu, 01 Jan 2026 00:00:30 +9999999999999999", None),
    ],
)
def test_retry_after_header(header: str, seconds: float | None) -> None:
    assert refused(429, status(429), Retry_After=header).retry_after == seconds


def test_retry_after_in_the_body() -> None:
    assert refused(429, status(429, details={"retryAfterSeconds": 3})).retry_after == 3.0
    assert refused(429, status(429, details={"retryAfterSeconds": 3}), Retry_After="9").retry_after == 9.0
    assert refused(429, status(429, details={"retryAfterSeconds": True})).retry_after is None


@pytest.mark.parametrize(
    ("code", "message", "too_large"),
    [
        (413, "Request entity too large: limit is 3145728", True),
        (500, "etcdserver: request is too large", True),
        (
            500,
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2211322 vs. 2097152)",
            True,
        ),
        (500, "etcdserver: leader changed", False),
        (500, "rpc error: code = Unavailable desc = transport is closing", False),
        (504, "etcdserver: request is too large", False),
        (422, "etcdserver: request is too large", False),
    ],
)
def test_objects_too_large_for_the_storage_are_recognized(code: int, message: str, too_large: bool) -> None:
    """In the words in which Kubernetes 1.20 and 1.36 pass it on."""
    assert isinstance(refused(code, status(code, message=message)), errors.TooLarge) is too_large

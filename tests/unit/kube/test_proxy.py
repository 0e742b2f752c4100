import pytest

from frameworkcontroller.kube.proxy import proxy_from_environment

PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("server", "no_proxy", "used"),
    [
        ("https://api.example.com:6443", "", True),
        ("https://api.example.com:6443", "example.com", False),
        ("https://api.example.com:6443", ".example.com", False),
        ("https://api.example.com:6443", "*.example.com", False),
        ("https://api.example.com:6443", "API.EXAMPLE.COM", False),
        ("https://api.example.com:6443", "ample.com", True),
        ("https://api.example.com:6443", "example.com:6443", False),
        ("https://api.example.com:6443", "example.com:443", True),
        ("https://api.example.com", "example.com:443", False),
        ("https://api.example.com:6443", "other, ,example.com", False),
        ("https://api.example.com:6443", "*", False),
        ("https://10.96.0.1:443", "10.0.0.0/8", False),
        ("https://10.96.0.1:443", "10.96.0.1", False),
        ("https://10.96.0.1:443", "11.0.0.0/8,nonsense/99", True),
        ("https://10.96.0.1:443", "96.0.1", True),
        ("https://[fd00::1]:443", "fd00::/8", False),
        ("https://[fd00::1]:443", "[fd00::1]:443", False),
        ("https://api.example.com:6443", "10.0.0.0/8", True),
        ("https://localhost:6443", "", False),
        ("https://127.0.0.1:6443", "", False),
        ("https://[::1]:6443", "", False),
    ],
)
def test_exceptions(server: str, no_proxy: str, *, used: bool) -> None:
    for names in (("HTTPS_PROXY", "NO_PROXY"), ("https_proxy", "no_proxy")):
        environ = {names[0]: PROXY, names[1]: no_proxy}
        assert proxy_from_environment(server, environ) == (PROXY if used else None)


def test_the_variable_goes_by_the_servers_scheme() -> None:
    environ = {"HTTP_PROXY": "plain:1"}
    assert proxy_from_environment("http://api:80", environ) == "http://plain:1"
    assert proxy_from_environment("https://api:443", environ) is None

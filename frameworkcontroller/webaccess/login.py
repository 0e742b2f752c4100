"""The login page, which takes a pasted token, or on loopback that of the printed address.

All its links are relative, so it works below any prefix. A pasted token is sent in the body of a POST and kept in this
process: it is in no URL, no cookie and no log.
"""

from __future__ import annotations

import html
import re
from string import Template
from typing import Final
from urllib.parse import parse_qs, quote, unquote

from aiohttp import web

from frameworkcontroller.webaccess.access import Access, AccessError, Refused
from frameworkcontroller.webaccess.bodies import SlowBodyError, pieces
from frameworkcontroller.webaccess.origins import from_own_page
from frameworkcontroller.webaccess.sessions import Sessions

LOGIN: Final = "/login"
LOGOUT: Final = "/logout"
STYLE: Final = "/login.css"
PATHS: Final = frozenset({LOGIN, LOGOUT, STYLE})
"""Need no viewer."""

_MAX_BODY_BYTES: Final = 64 << 10
_MAX_NEXT: Final = 2_000
# The characters of paths and queries; no backslash, which browsers take for a slash.
_RELATIVE: Final = re.compile(r"[A-Za-z0-9._~%!$&'()*+,;=:@/?-]*", re.ASCII)


class Login:
    """The routes of the login page."""

    def __init__(self, access: Access, sessions: Sessions) -> None:
        self._access = access
        self._sessions = sessions

    def add_to(self, app: web.Application) -> None:
        """Add the routes."""
        app.router.add_get(LOGIN, self._show)
        app.router.add_post(LOGIN, self._log_in)
        app.router.add_post(LOGOUT, self._log_out)
        app.router.add_get(STYLE, _style)

    async def _show(self, request: web.Request) -> web.Response:
        token = self._sessions.token(request)
        target = _checked(request.query.get("next", ""))
        if self._access.by_link and "token" in request.query:
            return await self._follow_link(request, request.query["token"], target)
        if token is not None:
            try:
                viewer = await self._access.identify(request, token)
            except AccessError:
                pass
            else:
                return _page(
                    "Logged in", _LOGGED_IN.substitute(user=html.escape(viewer.name), target=_attribute(target))
                )
        return self._form(target)

    async def _follow_link(self, request: web.Request, token: str, target: str) -> web.Response:
        try:
            viewer = await self._access.identify(request, token)
        except AccessError as error:
            return self._form(target, str(error), error.status)
        response = _page("Logged in", _CONTINUE.substitute(target=_attribute(target)))
        # After a redirect, browsers would not send the cookie if a page of another origin has the link.
        response.headers.update({"Refresh": f"0; url=./{target}", "Referrer-Policy": "no-referrer"})
        self._sessions.begin(request, response, token, viewer.owner)
        return response

    async def _log_in(self, request: web.Request) -> web.Response:
        _require_own_page(request)
        form = await _read_form(request)
        target, token = _checked(form.get("next", "")), form.get("token", "").strip()
        try:
            viewer = await self._access.identify(request, token or None)
        except AccessError as error:
            return self._form(target, str(error), error.status)
        response = _redirect(f"./{target}")
        self._sessions.begin(request, response, token, viewer.owner)
        return response

    async def _log_out(self, request: web.Request) -> web.Response:
        _require_own_page(request)
        response = _redirect(f".{LOGIN}")
        self._sessions.end(request, response)
        return response

    def _form(self, target: str, problem: str = "", status: int = 200) -> web.Response:
        alert = f'<p id="problem" role="alert">{html.escape(problem)}</p>' if problem else ""
        invalid = ' aria-invalid="true" aria-describedby="problem"' if problem else ""
        label, hint = _OF_THE_SERVER if self._access.by_link else _OF_THE_CLUSTER
        body = _FORM.substitute(
            alert=alert, invalid=invalid, label=label, hint=hint, next=html.escape(target), target=_attribute(target)
        )
        return _page("Log in", body, status)


def login_redirect(request: web.BaseRequest) -> web.Response:
    """Return a redirect to the login page, and from there back to the request's URL."""
    path = request.rel_url.raw_path
    query = request.rel_url.raw_query_string
    target = _checked(path.lstrip("/") + (f"?{query}" if query else ""))
    return _redirect(f"{_root(request)}{LOGIN[1:]}" + (f"?next={quote(target, safe='')}" if target else ""))


def wants_page(request: web.BaseRequest) -> bool:
    """Whether a browser asks for a page, and sends no token of its own."""
    return (
        request.method in ("GET", "HEAD")
        and "text/html" in request.headers.get("Accept", "")
        and "Authorization" not in request.headers
    )


def problem_page(request: web.BaseRequest, error: AccessError) -> web.Response:
    """Return a page that states the problem."""
    return _page(error.title, f'<p role="alert">{html.escape(str(error))}</p>', error.status, _root(request))


def _root(request: web.BaseRequest) -> str:
    """The relative URL of the root of the site."""
    return "../" * (request.rel_url.raw_path.count("/") - 1) or "./"


def _checked(target: str) -> str:
    """Return a path and query below the prefix; "" for anything that could lead elsewhere."""
    path = unquote(target.partition("?")[0])
    if len(target) > _MAX_NEXT or not _RELATIVE.fullmatch(target) or ".." in path or "\\" in path:
        return ""
    return target.lstrip("/")


def _require_own_page(request: web.BaseRequest) -> None:
    # Login CSRF: another page must not log a browser in with a token of its own choice.
    if from_own_page(request) is not True:
        raise Refused("the form must be sent by a browser, from the login page; other clients send a header")


async def _read_form(request: web.Request) -> dict[str, str]:
    body = bytearray()
    if request.content_type != "application/x-www-form-urlencoded":
        raise Refused("the form must be application/x-www-form-urlencoded")
    try:
        async for part in pieces(request.content, 1 << 14):
            body += part
            if len(body) > _MAX_BODY_BYTES:
                raise Refused("the form is too large")
    except SlowBodyError as error:
        raise Refused(str(error)) from None
    try:
        fields = parse_qs(body.decode(), max_num_fields=10)
    except ValueError:
        raise Refused("the form is malformed") from None
    return {name: values[0] for name, values in fields.items()}


def _redirect(location: str) -> web.Response:
    return web.Response(status=303, headers={"Location": location})


def _attribute(target: str) -> str:
    return html.escape(f"./{target}")


def _page(title: str, body: str, status: int = 200, root: str = "./") -> web.Response:
    text = _PAGE.substitute(title=html.escape(title), body=body, root=root)
    # With no-referrer, browsers would send the origin "null" with the form.
    return web.Response(text=text, status=status, content_type="text/html", headers={"Referrer-Policy": "same-origin"})


async def _style(_request: web.Request) -> web.Response:
    return web.Response(text=_STYLE, content_type="text/css", headers={"Cache-Control": "max-age=3600"})


_PAGE: Final = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title · FrameworkController</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="${root}login.css">
</head>
<body>
<main>
<h1>$title</h1>
$body
</main>
</body>
</html>
""")

_FORM: Final = Template("""\
$alert
<form method="post" action="login">
<label for="token">$label</label>
<textarea id="token" name="token" rows="6" required autocomplete="off" spellcheck="false"$invalid></textarea>
<input type="hidden" name="next" value="$next">
<button type="submit">Log in</button>
</form>
$hint
<p>Logged in already? <a href="$target">Continue</a></p>""")

_OF_THE_CLUSTER: Final = (
    "Bearer token of the cluster",
    """\
<p>You see the Frameworks of the namespaces in which you may get Frameworks. A token of a ServiceAccount:</p>
<pre><code>kubectl create token NAME --namespace NAMESPACE</code></pre>""",
)
_OF_THE_SERVER: Final = (
    "Token of this server",
    "<p>The address that the server has printed at its start contains the token, and logs you in.</p>",
)

_CONTINUE: Final = Template("""\
<p><a href="$target">Continue</a></p>""")

_LOGGED_IN: Final = Template("""\
<p>As <bdi>$user</bdi>.</p>
<p><a href="$target">Continue</a></p>
<form method="post" action="logout"><button type="submit">Log out</button></form>""")

_STYLE: Final = """\
/* The colors are those of the pages. */
:root {
  color-scheme: light dark;
  --page: #f4f6f9; --surface: #ffffff; --sunken: #eef1f5; --text: #1a2230; --muted: #525d70; --line: #d5dbe5;
  --control: #7b8799; --accent: #0b5cad; --on-accent: #ffffff; --failed: #c8471a; --failed-soft: #fdeee8;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #10141b; --surface: #181e28; --sunken: #212936; --text: #e5e9f0; --muted: #a0abbd; --line: #303a49;
    --control: #7f8ba0; --accent: #7db7ff; --on-accent: #0b1420; --failed: #f0754a; --failed-soft: #3a2018;
  }
}
*, *::before, *::after { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 36rem; margin: 10vh auto 2rem; padding: 1.5rem; border: 1px solid var(--line); border-radius: 8px;
  background: var(--surface); overflow-wrap: anywhere; }
h1 { margin: 0 0 1rem; font-size: 1.6rem; line-height: 1.25; }
a { color: var(--accent); }
label { display: block; margin-bottom: .25rem; font-weight: 600; }
textarea { width: 100%; padding: .5rem; border: 1px solid var(--control); border-radius: 6px; background: var(--page);
  color: inherit; font: .875rem/1.4 ui-monospace, monospace; }
button { min-height: 2.5rem; margin-top: .75rem; padding: .375rem 1.25rem; border: 1px solid var(--accent);
  border-radius: 6px; background: var(--accent); color: var(--on-accent); font: inherit; font-weight: 600;
  cursor: pointer; }
form + p { color: var(--muted); }
pre { margin: 0; padding: .5rem .625rem; border-radius: 6px; background: var(--sunken); font-size: .8125rem;
  white-space: pre-wrap; }
[role=alert] { padding: .375rem .75rem; border-left: 4px solid var(--failed); background: var(--failed-soft); }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
@media (max-width: 640px) { main { margin: 0; border: 0; border-radius: 0; min-height: 100vh; } }
"""

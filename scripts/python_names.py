"""Print docs/python-reference.md, the public names of the SDK, from their docstrings.

Run as `.venv/bin/python scripts/python_names.py > docs/python-reference.md`; a test detects an outdated page.
"""

import inspect
import re
from collections.abc import Iterator
from textwrap import fill
from typing import Any, Final

from frameworkcontroller import sdk
from frameworkcontroller.sdk.presets import Options

HEAD: Final = """\
The public names of the package `frameworkcontroller`, from their docstrings. [From Python](python.md) shows their use.
`frameworkcontroller.aio` has the same names; there, the methods of `Cluster` and `Run` are coroutines, and `watch` and
`logs` asynchronous iterators. `options` are those fields of `Framework` and `Role`: """


def signature(value: Any) -> str:
    """The parameters of a function, without types; the fields of a class that has some."""
    if inspect.isclass(value):
        fields = vars(value).get("__pydantic_fields__") or vars(value).get("__dataclass_fields__") or ()
        return f"({', '.join(fields)})" if fields else ""
    found = inspect.signature(value)
    bare = [one.replace(annotation=one.empty) for name, one in found.parameters.items() if name not in ("self", "cls")]
    return str(found.replace(parameters=bare, return_annotation=found.empty))


def prose(value: Any, indent: str = "") -> str:
    """The docstring in Markdown."""
    text = re.sub(r"``(.+?)``", r"`\1`", inspect.cleandoc(value.__doc__).replace("Raises:\n", "Raises "))
    return " ".join(text.split()) if indent else re.sub(r"(?<!\n)\n(?!\n)", " ", text)


def members(value: Any) -> Iterator[str]:
    """The public methods and properties of a class, by their order in the source."""
    for name, member in vars(value).items():
        function = getattr(member, "__func__", member)
        if not name.startswith("_") and (inspect.isfunction(function) or isinstance(function, property)):
            call = "" if isinstance(function, property) else signature(function)
            yield wrapped(f"- `{name}{call}`: {prose(function, '  ')}", "  ")


def wrapped(text: str, indent: str = "") -> str:
    return fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def document() -> str:
    parts = ["# Python reference", wrapped(HEAD + ", ".join(f"`{name}`" for name in Options.__annotations__) + ".")]
    for name in sorted(sdk.PLACES, key=str.lower):
        value = sdk.find(name)
        parts += [f"## {name}", *(wrapped(f"`{name}{call}`") for call in [signature(value)] if call)]
        parts += [*map(wrapped, prose(value).split("\n\n")), "\n".join(members(value))]
    return "\n\n".join(filter(None, parts)) + "\n"


if __name__ == "__main__":
    print(document(), end="")

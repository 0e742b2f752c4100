"""The Frameworks of ``run --array``. Their state is in the cluster only: a later command continues from it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.api.status import State
from frameworkcontroller.commands import program
from frameworkcontroller.commands.invocation import Invocation
from frameworkcontroller.commands.progress import Ending, ending
from frameworkcontroller.commands.runmanifest import ARRAY_LABEL, Builder, place
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.sdk.definitions import Framework
from frameworkcontroller.views.apiobjects import CachedObject, Json, key_of, state_of
from frameworkcontroller.views.texts import counted

_Record = CachedObject[Ending | None]


class Array:
    """Creates the Frameworks that do not exist yet, a limited number at a time, and waits for them if asked."""

    def __init__(
        self, invocation: Invocation, builder: Builder, create: Callable[[Framework], Awaitable[Json]]
    ) -> None:
        options = builder.options
        self._invocation = invocation
        self._builder = builder
        self._create = create
        self._options = options
        self._names: dict[str, int] = {f"{options.name}{index}": index for index in options.array}
        self._selector = f"{ARRAY_LABEL}={options.name}"
        self._running: set[str] = set()
        """Of all indexes, also such as another command has created."""
        self._ends: dict[str, Ending] = {}
        self._changed = asyncio.Event()
        self._is_reported = False
        self._informer: Informer[_Record] = Informer(
            invocation.client,
            FRAMEWORKS,
            lambda body: CachedObject.of(body, _end_of(body)),
            namespace=invocation.namespace,
            label_selector=self._selector,
        )
        self._informer.add_handler(
            on_add=self._on_change,
            on_update=lambda _old, new: self._on_change(new),
            on_delete=lambda old, _final: self._on_deleted(old),
        )

    async def run(self) -> int:
        """Return the exit code."""
        for text in self._builder.check(self._builder.build(self._options.array[-1])):
            self._invocation.note(text)
        # An informer retries after errors. This list ends the command with them.
        each = self._invocation.each(FRAMEWORKS, label_selector=self._selector, metadata_only=True)
        existing = {body["metadata"]["name"] async for body in each}
        if self._options.at_most is None and not self._options.wait:
            await self._create_all(existing)
        else:
            async with program.background(self._informer.run()):
                await self._informer.wait_synced()
                self._is_reported = True
                await self._create_all({record.key.partition("/")[2] for record in self._informer.lister.values()})
                if self._options.wait:
                    return await self._end()
        self._invocation.note(f"their states: {self._list()}")
        return program.EXIT_OK

    async def _create_all(self, existing: set[str]) -> None:
        if known := existing & self._names.keys():
            self._invocation.note(f"{len(known)} of {len(self._names)} exist already, and stay as they are")
        left = [name for name in self._names if name not in existing]
        try:
            while left:
                while self._options.at_most is not None and len(self._running) >= self._options.at_most:
                    await self._change()
                self._running.add(left[0])
                await self._create(self._builder.build(self._names[left[0]]))
                del left[0]
        except (asyncio.CancelledError, program.CommandError):
            self._invocation.note(
                f"{len(left)} of {len(self._names)} are not created; to continue: the same command with --array "
                f"{self._names[left[0]]}-{self._options.array[-1]}"
            )
            if len(left) < len(self._names):
                self._invocation.note(f"the others continue: {self._list()}")
            raise

    async def _end(self) -> int:
        try:
            while self._names.keys() - self._ends.keys():
                await self._change()
        except asyncio.CancelledError:
            self._invocation.note(f"they continue: {self._list()}")
            raise
        succeeded = sum(self._ends[name].succeeded for name in self._names)
        self._invocation.print(f"{succeeded} of {counted(len(self._names), 'Framework')} succeeded")
        return program.EXIT_OK if succeeded == len(self._names) else program.EXIT_FAILED

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _on_change(self, record: _Record) -> None:
        name = record.key.partition("/")[2]
        if record.value is None:
            self._running.add(name)
        else:
            self._ended(name, record.value)

    def _on_deleted(self, record: _Record) -> None:
        if record.value is None:
            self._ended(record.key.partition("/")[2], ending(record.key, None))

    def _ended(self, name: str, end: Ending) -> None:
        self._running.discard(name)
        if self._is_reported and name in self._names and name not in self._ends:
            self._invocation.print(end.text.partition("\n")[0])
        self._ends[name] = end
        self._changed.set()

    def _list(self) -> str:
        return f"kubectl framework list -l {self._selector}{place(self._options)}"


def _end_of(body: Any) -> Ending | None:
    return ending(key_of(body), body) if state_of(body) == State.COMPLETED else None

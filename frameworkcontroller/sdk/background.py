"""One thread with an event loop, in which the synchronous SDK works: also below notebooks, whose thread has its own."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeVar

from frameworkcontroller.sdk.exceptions import FrameworkError

T = TypeVar("T")

_END_SEC: Final = 15.0


class LoopThread:
    """A daemon thread that runs an event loop until the process ends."""

    def __init__(self) -> None:
        self._pid: Final = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="frameworkcontroller", daemon=True)
        self._ended = False
        self.opened: set[AbstractAsyncContextManager[object]] = set()
        """Entered there; left at the end of the process."""
        self._thread.start()
        atexit.register(self._end)

    @property
    def works(self) -> bool:
        """False after a fork, which has no threads of its parent, and at the end of the process."""
        return os.getpid() == self._pid and not self._ended

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine there, and return its result. An interrupt cancels it, and waits for its end.

        Raises:
            RuntimeError: it cannot run: after a fork, or in the thread itself.
        """
        problem = ""
        if os.getpid() != self._pid:
            problem = f"this cluster was opened by process {self._pid}: after a fork, connect again"
        elif self._ended:
            problem = "the process ends"
        elif threading.current_thread() is self._thread:
            problem = "coroutines must use frameworkcontroller.aio"
        if problem:
            work.close()
            raise RuntimeError(problem)
        tasks: list[asyncio.Task[T]] = []
        done = threading.Event()

        def begin() -> None:
            tasks.append(self._loop.create_task(work))
            tasks[0].add_done_callback(lambda _: done.set())

        self._loop.call_soon_threadsafe(begin)
        try:
            done.wait()
        except BaseException:
            self._loop.call_soon_threadsafe(lambda: tasks[0].cancel())  # noqa: PLW0108 - `begin` runs before
            done.wait()
            raise
        try:
            return tasks[0].result()
        except FrameworkError as error:
            # Without the frames of the other thread.
            raise error.with_traceback(None)  # noqa: B904 - its cause is another

    def iterate(self, values: AsyncIterator[T]) -> Iterator[T]:
        """Yield the values of an asynchronous iterator, which is closed at the end."""

        async def following() -> tuple[bool, T | None]:
            try:
                return True, await anext(values)
            except StopAsyncIteration:
                return False, None

        async def close() -> None:
            if (closing := getattr(values, "aclose", None)) is not None:
                await closing()

        try:
            while True:
                more, value = self.call(following())
                if not more:
                    return
                yield value  # type: ignore[misc]  # there is one
        finally:
            if threading.current_thread() is self._thread:
                # Garbage is collected in any thread.
                _ = self._loop.create_task(close())
            elif self.works:
                self.call(close())

    def _end(self) -> None:
        """End the tasks and leave the open contexts, as an interpreter reports unfinished ones."""
        if not self.works:
            return

        async def end() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            closing = [asyncio.create_task(one.__aexit__(None, None, None)) for one in self.opened]
            if waiting := [*tasks, *closing]:
                await asyncio.wait(waiting, timeout=_END_SEC)

        try:
            self.call(end())
        finally:
            self._ended = True
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_END_SEC)


_thread: LoopThread | None = None
_making: Final = threading.Lock()


def loop_thread() -> LoopThread:
    """Return the thread of this process."""
    global _thread  # noqa: PLW0603 - one for all clusters
    with _making:
        if _thread is None or not _thread.works:
            _thread = LoopThread()
        return _thread

"""One thread with an event loop, in which the synchronous SDK works: also below notebooks, whose thread has its own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, Final, TypeVar

from frameworkcontroller.sdk.exceptions import FrameworkError

T = TypeVar("T")


class LoopThread:
    """A daemon thread that runs an event loop until the process ends."""

    def __init__(self) -> None:
        self._pid: Final = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="frameworkcontroller", daemon=True)
        self._thread.start()

    @property
    def is_ours(self) -> bool:
        """Whether it runs in this process: a fork has no threads of its parent."""
        return os.getpid() == self._pid

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine there, and return its result. An interrupt cancels it.

        Raises:
            RuntimeError: it cannot run, after a fork or in the thread itself.
        """
        problem = ""
        if not self.is_ours:
            problem = f"this cluster was opened by process {self._pid}: after a fork, connect again"
        elif threading.current_thread() is self._thread:
            problem = "coroutines must use frameworkcontroller.aio"
        if problem:
            work.close()
            raise RuntimeError(problem)
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except FrameworkError as error:
            # Without the frames of the other thread.
            raise error.with_traceback(None)  # noqa: B904 - its cause is another
        except BaseException:
            future.cancel()
            raise

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
            if self.is_ours:
                self.call(close())


_thread: LoopThread | None = None
_making: Final = threading.Lock()


def loop_thread() -> LoopThread:
    """Return the thread of this process."""
    global _thread  # noqa: PLW0603 - one for all clusters
    with _making:
        if _thread is None or not _thread.is_ours:
            _thread = LoopThread()
        return _thread

"""A test that hangs anywhere is ended."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

HANGS = """
import asyncio

from tests.support import virtual_clock

async def tick():
    while True:
        await asyncio.sleep(1)

async def spin():
    while True:
        pass

async def yielding():
    while True:
        await asyncio.sleep(0)

async def swallow(hang):
    await asyncio.gather(asyncio.create_task(hang()), return_exceptions=True)
    await asyncio.Event().wait()

def test_virtual_time_whose_timers_go_on_for_ever():
    virtual_clock.run(swallow(tick))

def test_virtual_time_with_a_task_that_never_yields():
    async def main():
        asyncio.get_running_loop().call_later(9, print)
        await asyncio.gather(swallow(spin), tick())
    virtual_clock.run(main())

def test_real_time_with_tasks_that_always_run():
    async def main():
        while True:
            await asyncio.gather(yielding(), return_exceptions=True)
    asyncio.run(main())

def test_real_time_asleep():
    asyncio.run(asyncio.sleep(1000))

def test_no_loop():
    while True:
        pass
"""


def test_every_hang_is_ended_and_says_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    (tmp_path / "test_hangs.py").write_text(HANGS)
    options = ["-q", "-p", "no:cacheprovider", "--timeout=0.3", f"--rootdir={tmp_path}"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options, tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    hangs = re.findall(r"def (test_\w+)", HANGS)
    _, *told = re.split(r"^_+ (test_\w+) _+$", ran.stdout, flags=re.MULTILINE)
    assert told[::2] == hangs, ran.stdout
    # On a machine that stood still, the signal came again while the first one's exception was on its way.
    assert all("still not done after 0.3 s; it was here:" in why for why in told[1::2]), ran.stdout
    assert f"{len(hangs)} failed" in ran.stdout

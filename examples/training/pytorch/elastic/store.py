"""Keeps the store at which the agents of torchrun meet, until it is stopped."""

import signal
import sys

from torch.distributed import TCPStore

signal.signal(signal.SIGTERM, lambda *_: sys.exit())
store = TCPStore("localhost", 29400, is_master=True, wait_for_workers=False)
signal.pause()

"""Ending with the parent: a child process that does not outlive the process that started it.

There are two ways, for two kinds of children. `end_with_parent` asks the kernel for a signal when the parent
dies: a program of this project calls it first in its main function. A child that may run on any system, like
the archive beside a broker, watches its standard input instead, which the kernel closes when the parent dies
(`SupervisedProcess`, `end_with_input`).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from threading import Thread

#: The option of prctl(2) that sets the signal which a process gets when its parent dies.
_PR_SET_PDEATHSIG = 1


def end_with_parent(number: signal.Signals, parent: int | None = None) -> None:
    """Have the kernel send signal `number` to this process when its parent ends, also by SIGKILL.

    Exits with code 1 if the parent has ended already: then no signal will come. `parent` is the process that
    has started this one; where it is not known, the first process of the system counts as none, which it is
    in a container. Linux only. The setting is
    kept over `exec`, so it also holds for a command that takes this process over.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() == 1 if parent is None else os.getppid() != parent:
        sys.exit(1)


def end_with_input() -> None:
    """End this process, in order, when whoever holds its standard input is gone."""

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=watch, name="tidemark input", daemon=True).start()

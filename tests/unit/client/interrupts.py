"""Interrupts at chosen places of a call, as Ctrl-C makes them.

The interpreter looks for signals where a call returns and where a function begins. An interrupt at each of these places
in turn, in the client and in `threading`, is what Ctrl-C can do.
"""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import amps.client

MODULES = (str(Path(amps.client.__file__).parent), threading.__file__)


class Interrupt(BaseException):
    """What the handler of the signal raises."""


def interrupted(call: Callable[[], object], nth: int) -> bool:
    """Make a call and interrupt it at the nth place; return whether there was one."""
    passed = 0

    def look(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal passed
        if event in ("call", "return", "c_return") and frame.f_code.co_filename.startswith(MODULES):
            passed += 1
            if passed == nth:
                raise Interrupt

    sys.setprofile(look)
    try:
        call()
    except Interrupt:
        return True
    finally:
        sys.setprofile(None)
    return False

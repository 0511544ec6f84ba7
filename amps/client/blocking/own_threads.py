"""The threads that belong to a client, and what SystemExit of a handler does on them."""

import threading


class ClientThread(threading.Thread):
    """A thread of a client. It ends no program."""


def ends_caller(error: BaseException) -> bool:
    """Raise SystemExit or KeyboardInterrupt in a call of the application; False: this is a thread of a client."""
    if not isinstance(threading.current_thread(), ClientThread):
        raise error
    return False

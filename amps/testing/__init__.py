"""Tests of applications with a real server: fixtures of pytest, and a context manager for other frameworks.

In `conftest.py`:

    pytest_plugins = ["amps.testing"]

In a test:

    @pytest.mark.amps_server(queues={"work": {"LeasePeriod": "1s"}})
    def test_an_order_is_worked_on(amps_server):
        with Client("test", amps_server.uri("json")) as client:
            ...

- `amps_server`: a server for one test. It starts in less than a second, on free ports, in a temporary directory that is
  removed afterwards. The marker `amps_server` has arguments of `AmpsServer`.
- `amps_server_session`: a server that all tests share, for tests that need not start with an empty one.
- `amps_server_options`: arguments of `AmpsServer` for both; override it in `conftest.py`.
- `AmpsServer`: the class behind them, `amps.Server`, a context manager that does not need pytest. With the argument
  `clock="manual"`, `server.advance(30)` ends a lease of 30 seconds at once.

`server.kill()`, `server.restart()` and `server.stop()` let a test see how the application survives the loss of its
server. If a test fails, its report shows the end of the server's output. Workers of pytest-xdist have servers of their
own. The plugin has no entry point, because pytest would then import this package in every run of the environment.
"""

from amps.embedded import Server as AmpsServer
from amps.embedded import ServerError as AmpsServerError

__all__ = ["AmpsServer", "AmpsServerError"]

try:
    import pytest  # noqa: F401
except ModuleNotFoundError:
    pass
else:
    from amps.testing.fixtures import (
        amps_server,
        amps_server_options,
        amps_server_session,
        pytest_configure,
        pytest_runtest_makereport,
    )

    __all__ += [
        "amps_server",
        "amps_server_options",
        "amps_server_session",
        "pytest_configure",
        "pytest_runtest_makereport",
    ]

"""An open messaging server that keeps what it acknowledged, with its client library.

    _core        compiled code that runs for every message
    journal      the files of a transaction log; imports `_core`
    messages     message types; imports `_core`
    expressions  filters and other expressions; imports `_core`
    config       reads configurations; imports `expressions`, `messages`, `journal` and `_core`
    server       runs an instance; imports `config` and everything that `config` imports
    client       the library for applications; imports `journal` and `_core`, and never the server
    spark        the data source of Apache Spark and its pipelines; imports `client`, `journal` and `_core`
    embedded     `amps.Server`, a server inside a program; starts the installed server, and imports no other package
    testing      fixtures of pytest for tests of applications; imports `embedded`
    cli          the commands; imports `server`, `client`, `spark`, `config`, `journal` and `_core`

The modules beside them import no other package of `amps`. `topic_expressions` has the rule for topics (used by
`config`, `server` and `spark`). `expression_index` finds the expressions that may match a name (`config`, `server`).
`same_host` sets up TCP connections within one host (`client`, `server`). `version` has the version.
"""

from typing import TYPE_CHECKING, Any

from amps.version import VERSION as __version__

if TYPE_CHECKING:
    from amps.embedded import Server as Server
    from amps.embedded import ServerConfigurationError as ServerConfigurationError
    from amps.embedded import ServerError as ServerError

__all__ = ["__version__"]

_EMBEDDED = ("Server", "ServerConfigurationError", "ServerError")


def __getattr__(name: str) -> Any:
    """Import `Server` and its errors when they are first used. Raises ImportError in an installation without it."""
    if name not in _EMBEDDED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from amps import embedded
    except ImportError as problem:
        raise ImportError(
            f"amps.{name} needs the server, which is not installed; it is in the package amps-server"
        ) from problem
    return getattr(embedded, name)

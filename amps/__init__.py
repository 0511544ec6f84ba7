"""An open messaging server that keeps what it acknowledged, with its client library.

    _core        compiled code that runs for every message
    journal      the files of a transaction log; imports `_core`
    messages     message types; imports `_core`
    expressions  filters and other expressions; imports `_core`
    config       reads configurations; imports `expressions`, `messages`, `journal` and `_core`
    server       runs an instance; imports `config` and everything that `config` imports
    client       the library for applications; imports `journal` and `_core`, and never the server
    spark        the data source of Apache Spark and its pipelines; imports `client`, `journal` and `_core`
    testing      servers for tests of applications; starts the installed server, and imports no other package
    cli          the commands; imports `server`, `client`, `spark`, `config`, `journal` and `_core`

The modules beside them import no other package of `amps`. `topic_expressions` has the rule for topics (used by
`config`, `server` and `spark`). `expression_index` finds the expressions that may match a name (`config`, `server`).
`same_host` sets up TCP connections within one host (`client`, `server`). `version` has the version.
"""

from amps.version import VERSION as __version__

__all__ = ["__version__"]

"""An open messaging server that keeps what it acknowledged, with its client library.

`amps._core` holds the compiled hot path, `amps.config` reads configurations, `amps.server` runs an
instance, `amps.client` is what applications import, `amps.cli` is the `amps` command. Imports point one
way: cli → server and client → config → _core; the client never imports the server.
"""

from amps.version import VERSION as __version__

__all__ = ["__version__"]

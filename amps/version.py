"""The version of the package: the one place that states it."""

VERSION = "0.1.0"

WIRE_VERSION = VERSION + ".0"
"""The server's version as logon acknowledgements carry it: four numbers (operations.md §1.8)."""

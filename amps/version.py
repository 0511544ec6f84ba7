"""The version of the package: the one place that states it."""

VERSION = "0.1.0"

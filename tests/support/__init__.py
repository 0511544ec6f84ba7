"""Modules shared by tests of several kinds: a server under test, a raw peer, certificates.

Nothing here may import `amps._core` or any other part of the package: the tests judge that code, so they must not
depend on it.
"""

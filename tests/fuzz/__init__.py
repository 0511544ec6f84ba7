"""Fuzzing of the parsers of frames, headers, transactions and links, alone and behind a live server's sockets.

Every case comes from one integer seed, so that a finding is repeated by its seed. The normal test run tries a
few seconds of fixed seeds; `python -m tests.fuzz --forever` goes on until it finds something and prints it.
"""

"""Memory that the processes of one instance share: the control page and the rings.

How it works. The supervisor maps the control page and two rings per transport before it forks, so every process has
them at the same place and a restarted worker finds them again. The control page holds the watermarks (written,
durable), the sleep flags and the heartbeats. A ring carries records one way, from one producer to one consumer.
Before a process waits, it sets its sleep flag and checks for work once more. Then it waits for its wake-up descriptor.

What lives here: atomic loads and stores, checksums, clocks (`platform.h`); the control page, the rings and the
placement of the core on processors (`memory`, with `processors.h`); the layout mark that keeps modules of different
builds apart (`layout.pxi`); the check whether pages of a mapped file are in memory (`residency.h`, for `journal` and
`queues`).

What may not live here: code that interprets records. A ring uses only the length of an entry.

Invariants
- Each word has one writer, and each writer has cache lines of its own.
- A producer stores the bytes first and then `head`, with release. A consumer stores `tail` after its last access to the
  bytes.

Imports nothing of the other sub-packages.
"""

"""Memory that the processes of one instance share: the control page and the rings.

How it works. The supervisor maps the control page and two rings per transport before it forks, so every process has
them at the same place and a restarted worker finds them again. The control page holds the watermarks (what is written,
what is durable), the sleep flags and the heartbeats. A ring carries records one way, from one producer to one consumer.
A process that wants to wait sets its sleep flag, looks once more, and then waits for its wake-up descriptor.

What lives here: atomic loads and stores, checksums, clocks (`platform.h`); the control page, the rings and the
placement of the core on processors (`memory`); the layout mark that keeps modules of different builds apart
(`layout.pxi`).

What may not live here: anything that knows what a record means. A ring knows the length of an entry, nothing else.

Invariants
- Each word has one writer, and each writer has cache lines of its own.
- A producer stores the bytes first and then `head`, with release; a consumer is done with the bytes before it stores
`tail`.

Imports nothing of the other sub-packages.
"""

"""The protocol without input or output: commands, messages, options, and the engine with its rules.

The engine takes received bytes and clock readings, and returns bytes to send and events. All front ends use it, so the
rules exist once. What may not live here: sockets, threads, locks, asyncio, clocks and logging.
"""

"""The parts that all front ends share: the application's handlers and listeners.

A front end connects the engine to the world. It opens the connection, calls the engine, writes its output and delivers
its events. What may not live here: sockets, threads and asyncio.
"""

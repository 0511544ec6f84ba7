"""Client libraries as an application sees them: this project's, and the Python clients of other servers.

A *client peer* (`perf.clients.base`) is one library in one way of use. It works in a process of its own
(`perf.clients.process`), whose processor time is measured. The server, and the load generator that feeds it
(`perf.pump`), run on the other processors. Each library is used in the fastest way that its documentation shows.
"""

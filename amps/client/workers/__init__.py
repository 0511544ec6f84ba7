"""Workers: programs that process the messages of a queue with a handler (client.md §6, §19).

`worker` has the public class. `settings` has its arguments, `backlog` the messages that a process holds, and `outcomes`
the acknowledgements, further attempts and dead letters. `pools` has the threads or tasks that run handlers, `runner`
the life of a worker in one process, and `supervisor` the child processes. A worker uses `HAClient`, and has no rules
of the protocol.
"""

"""Workers: programs that process the messages of a queue with a handler (client.md §6, §19).

`worker` has the public class. `settings` has its arguments, `backlog` the messages that a process holds, `outcomes` what
follows on a handler's success or failure, `pools` the threads or tasks that run handlers, `runner` the life of a
worker in one process, and `supervisor` the processes. A worker is a user of `HAClient`: it knows nothing of the protocol.
"""

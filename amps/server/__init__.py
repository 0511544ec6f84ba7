"""The server: a supervisor and the processes that it forks.

`supervisor` makes the shared memory (`runtime`), opens the listening sockets, and forks the log process (`eventlog`),
the core (`core`), the transports (`transport`) and, if it is configured, the services process (`services`). These fork
no process of the instance; the services process starts the commands of actions.

A transport writes each message as a whole record to its ingress ring. The core writes the records to the log, and
publishes log positions. Transports read the messages from the log. Egress rings carry the core's answers, and the log
positions of queue messages.

Sub-packages
    core        the core process: storages of the log, recovery, journal retention, queues around the compiled code
    transport   a transport process: client connections, commands, subscriptions, replays
    services    the services process: actions, requests to core and transports, publishing by the server
    admin       the administration interface over HTTP, which runs in the services process
    shared      code of the transports and the services process
    eventlog    the log process, and the sending side of the log for all processes

Of these, `core` imports only `eventlog`. `transport` imports `eventlog` and `shared`. `services` and `admin` import
each other, `eventlog` and `shared`. `shared` imports only `eventlog`, and `eventlog` imports none. `supervisor` imports
the code of all processes. `tests/unit/start/test_imports.py` checks that `core`, `services`, `admin` and `shared` do
not import `transport`, that `shared` imports none of the processes, and that no imports form a circle.

Top level
    Start          `main` (the command `ampServer`), `daemon`, `host`, `startup`, `console`, `service_needs` (for the
                   installer of the Linux service)
    Supervisor     `supervisor`, `children`, `instance_listeners`, `signals`, `service_manager`, `outage`, `stopping`
                   (the core uses its exit status, too)
    Made before    `runtime` has all shared objects. Their words are described in `health`, `memory_use`,
    the fork       `action_progress`, `queue_statistics`, `sow_statistics` and `write_statistics`
    Processes      used by two or more of core, transports and services: `records` (control records in the rings),
                   `topics`, `evaluation_contexts`, `request_answers`, `security`, `remedies`, `repeats`

What may not live at the top level: code of one process other than the supervisor. No module there except `supervisor`
imports `core`, `transport`, `services` or `admin`.
"""

"""Actions: work that an operator configures the server to do on events (operations.md §9).

`engine` runs them: an event has a source, a source has one worker, and the worker runs the actions of the event one
after the other, each to its end. A worker here is an asyncio task of the services process, not a transport process.
`variables` puts values into the texts of options. `schedules` waits for times. The
modules that carry out actions are small classes, each in the registry (`registry`), whose options are described in
`amps.config.action_modules`: a new module needs both, and nothing else.
"""

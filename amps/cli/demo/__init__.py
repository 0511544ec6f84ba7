"""`amps demo`: live proof on real data that no acknowledged message is lost.

`flights` reads the input, `server` runs and kills a server's process tree, `replaying` replays a log, `proof` compares
the result with the source, `display` shows the progress. `single` has the steps with one server: publish, kill,
restart, resume, replay, prove. `replicated` has those with two servers that replicate to each other: `pair` has their
configuration, `queue_workers` the workers of their queue. `run` is the frame of both, and `command` has the options.
"""

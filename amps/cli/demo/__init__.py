"""`amps demo`: live proof on real data that no acknowledged message is lost.

`flights` reads the input, `server` runs and kills the server process tree, `proof` compares the result of a replay
with the source, `display` shows the progress, `run` has the sequence of steps: publish, kill, restart, resume,
replay, prove. `command` has the options.
"""

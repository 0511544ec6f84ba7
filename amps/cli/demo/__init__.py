"""`amps demo`: proof on real data that nothing acknowledged is lost, watched live.

`flights` reads the input, `server` runs and kills the server process tree, `proof` compares what a replay
returns with the source, `display` shows how it goes, `run` is the story: publish, kill, restart, resume,
replay, prove. `command` has the options.
"""

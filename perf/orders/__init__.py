"""Messages for filters: orders of about 1 KB, the same ones in every format.

`records` generates them, `formats` writes them in the format of each message type, `journal` writes them to a log as
the core does. `corpus` does all of that for one run of the suite and passes the result to measuring processes.
"""

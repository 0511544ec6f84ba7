"""Messages for filters: orders of about 1 KB, the same ones in every format.

`records` makes them up, `formats` writes them in the format of each message type, `journal` lays them into a log as the
core would, `corpus` does all of that for one run of the suite and hands it to processes that measure.
"""

"""Types of functions on times; see expression_times.pyx. Nothing of it can be seen from Python."""

"""Types of predicates; see predicates.pyx. Nothing of it can be seen from Python."""

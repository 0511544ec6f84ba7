"""Types of operators; see expression_operators.pyx. Nothing of it can be seen from Python."""

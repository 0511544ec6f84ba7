"""Nothing of expression_operators.pyx is for Python."""

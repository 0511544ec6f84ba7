"""Types of arithmetic and numeric functions; see expression_numbers.pyx. Nothing of it can be seen from Python."""

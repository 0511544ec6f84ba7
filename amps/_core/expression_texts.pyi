"""Types of functions on text and arrays; see expression_texts.pyx. Nothing of it can be seen from Python."""

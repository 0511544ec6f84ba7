"""Types of the code of expressions; see expression_code.pyx."""

OPCODES: dict[str, int]

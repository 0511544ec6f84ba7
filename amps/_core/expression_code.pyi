"""Types of the code of expressions; see expression_code.pyx."""

OPCODES: dict[str, int]
JUMPS: tuple[int, ...]

def stack_needed(
    source: list[tuple[int, int]], constants: int, patterns: int, fields: int, functions: int
) -> int: ...

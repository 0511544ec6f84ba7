"""Tables and patterns of the compiler are made once, before the processes of a server are forked."""

import subprocess
import sys

PROGRAM = """
import re._compiler

from amps.expressions.filters import compile_filter, load_compiler

def compile_again(*arguments):
    raise AssertionError(f"a regular expression of the parser is compiled: {arguments[0]!r}")

load_compiler()
re._compiler.compile = compile_again
for text in ("/id > 1", "/a/b = 'x' OR /c < 3.5", "/d IN (1, 2)", "/e LIKE 'f'", "NOT /g IS NULL", "UPPER(/h) = 'I'"):
    compile_filter(text)
print("compiled")
"""


def test_the_first_filter_compiles_no_pattern_of_the_parser() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert done.stdout == "compiled\n", done.stderr

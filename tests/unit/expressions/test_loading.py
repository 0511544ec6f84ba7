"""What is made for compiling is made once, before the processes of a server are forked."""

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


def test_the_first_filter_waits_for_nothing_that_all_filters_need() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert done.stdout == "compiled\n", done.stderr

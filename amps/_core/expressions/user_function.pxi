# A function of expressions that is written in Python (expressions.md §10.11).
#
# The function receives one value for each argument: None, bool, int, float or bytes. For an array it receives the first
# element, for a container None. It returns one of these, or a str, which becomes UTF-8. Unlike the functions of this
# package, it is also called with NULL and may return a value for it.
#
# An exception in the function, or an invalid result, makes the result NULL. It is counted and the server reports it:
# one message must not disable an expression that works for other messages.

from libc.stdint cimport uint32_t

from amps._core.values.fields cimport FieldValues, Operand, first_of
from amps._core.values.value cimport Value, from_python, to_python

cdef enum:
    FAILURE_CHARACTERS_MAX = 500

_INTEGER_MIN = -(2**63)
_UNSIGNED_MAX = 2**64 - 1


cdef class UserFunction:

    def __init__(self, str name, implementation, minimum=0, maximum=None):
        """name: in upper case. minimum, maximum: number of arguments; maximum None means any number."""
        self.name = name
        self.implementation = implementation
        self.minimum = minimum
        self.maximum = maximum
        self.deterministic = True
        self.aggregate = False
        self.failures = 0
        self.last_failure = ""

    cdef int call(self, Operand* arguments, uint32_t count, FieldValues values, Value* result) except -1:
        """Call the function. `result` may be the value of the first argument."""
        cdef uint32_t at
        given = []
        for at in range(count):
            value = to_python(first_of(&arguments[at], values.nodes), values.arena)
            given.append(None if value is Ellipsis else value)
        try:
            from_python(_taken(self.implementation(*given)), result, values.arena)
        except BaseException as error:  # no exception may end the process or its event loop
            self.failures += 1
            self.last_failure = _described(error)
            from_python(None, result, values.arena)
        return 0


def _described(error):
    """An exception as one line. The class of the exception is user code, so its `str` may fail too."""
    try:
        text = str(error)
    except BaseException:
        text = "it cannot be shown"
    return f"{type(error).__name__}: {text}"[:FAILURE_CHARACTERS_MAX]


def _taken(made):
    """Convert the result of a function to a value. An integer beyond 64 bits becomes a double. TypeError: no such type.
    """
    if made is None or isinstance(made, (bool, float, bytes)):
        return made
    if isinstance(made, int):
        return made if _INTEGER_MIN <= made <= _UNSIGNED_MAX else float(made)
    if isinstance(made, str):
        return made.encode("utf-8", "surrogateescape")
    raise TypeError(f"a function gives None, bool, int, float, bytes or str, not {type(made).__name__}")

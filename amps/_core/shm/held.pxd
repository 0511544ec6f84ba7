# A buffer that an extension type holds for as long as it lives, or until it releases it.
#
# An attribute of the type Py_buffer would be wrong. Cython lets the garbage collector clear its `obj`, which releases
# nothing: a memoryview then dies with an export, and the interpreter with it. The collector does not look into this
# structure. So what is held counts as used, and only `PyBuffer_Release` in `__dealloc__` lets it go. What is held must
# not refer back to its holder.

cdef struct HeldBuffer:
    Py_buffer view

"""Values of expressions: publisher ids, values, and sets of constants."""

include "identity.pxi"
include "value.pxi"
include "constant_set.pxi"

"""The machine that runs expressions, and the sets of filters that it runs for."""

include "code.pxi"
include "user_function.pxi"
include "predicates.pxi"
include "vm.pxi"
include "filter_keys.pxi"
include "filter_set.pxi"

"""The state of groups of messages: bags of values, exact sums, and the groups themselves."""

include "value_bag.pxi"
include "exact_sum.pxi"
include "aggregates.pxi"

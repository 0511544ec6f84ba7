"""The operations of expressions on values: patterns, numbers, texts, times, operators, and the table of functions."""

include "patterns.pxi"
include "numbers.pxi"
include "texts.pxi"
include "times.pxi"
include "operators.pxi"
include "catalogue.pxi"

"""Frames and headers: the syntax of the protocol."""

include "headers.pxi"
include "header_pattern.pxi"

"""Structs with a fixed layout, and messages without fields (binary)."""

include "struct_scan.pxi"
include "binary_scan.pxi"

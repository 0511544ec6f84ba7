"""Sums of numbers without any rounding, for compiled modules only; see exact_sum.pyx."""

"""The values of a group, in order and counted, for compiled modules only; see value_bag.pyx."""

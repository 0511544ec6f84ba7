"""Nothing here for Python; see header_pattern.pyx."""

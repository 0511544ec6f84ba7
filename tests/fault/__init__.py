"""Faults of machine and file system: damaged bytes, full disks. Nothing acknowledged may be lost silently."""

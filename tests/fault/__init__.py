"""Faults of machine and file system: damaged bytes, full disks. No acknowledged message may be lost silently."""

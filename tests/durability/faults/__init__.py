"""Faults around operations: full disks, few open files, signals, clocks, failing calls, permissions and links."""

"""Damage to the files of an index: cut, changed, swapped or removed; then read, verify, salvage, repair and write."""

"""Parts of bench/scale.py."""

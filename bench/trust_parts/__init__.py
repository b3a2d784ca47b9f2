"""Parts of bench/trust.py: the measured index, variants in turns, and the parts search, ingest and open."""

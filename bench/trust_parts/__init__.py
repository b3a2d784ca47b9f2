"""What trust costs: the index that is measured, variants in turns, and the parts search, ingest and open."""

"""Parts of bench/peers.py; measuring.py runs a run_NAME.py in the environment of its peer, which has NumPy besides."""

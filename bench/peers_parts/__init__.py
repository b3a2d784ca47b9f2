"""Parts of bench/peers.py; each run_NAME.py runs in the environment of its peer, where only NumPy is added."""

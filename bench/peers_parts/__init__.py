"""What bench/peers.py is made of; each run_NAME.py runs in the environment of its peer, with NumPy alone beside it."""

"""What bench/scale.py is made of."""

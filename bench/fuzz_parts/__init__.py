"""What bench/fuzz.py and tests/fuzz share: targets, one a file, and what makes inputs for them and watches them."""

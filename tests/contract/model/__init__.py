"""The plain model of an index, and the rules of the state machine that compares an index with it."""

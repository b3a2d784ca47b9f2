"""Training of multi-view encoders; a separate root, so that the core never imports it."""

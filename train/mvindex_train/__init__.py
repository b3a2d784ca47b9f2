"""Training of multi-view encoders. The core never imports this package."""

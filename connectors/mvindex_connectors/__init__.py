"""Connectors of mvindex: engines that stand below the core, found by entry point."""

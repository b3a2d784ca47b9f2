"""Helpers that several folders of tests share: small corpora, oracles, cases."""

"""What several folders of tests share: small corpora, oracles, cases."""

"""Lexical search: tokenizer, postings and BM25."""

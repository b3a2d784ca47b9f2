"""Scores of documents: aggregation of view scores, fusion with lexical scores, reranking."""

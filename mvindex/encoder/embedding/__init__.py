"""Encoders over models that make one vector of a text: functions, SentenceTransformers, embeddings endpoints.

encoder.py has the protocol, the check of what a model returns, and makes views with it; functions are there too.
sentence_transformer.py and openai.py are the other models.
"""

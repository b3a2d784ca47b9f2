"""Encoders over models that make one vector of a text: functions, SentenceTransformers, embeddings endpoints.

embedder.py has the protocol and the check of what a model returns; encoder.py makes views with it; function.py,
sentence_transformer.py and openai.py are the models, http.py sends requests.
"""

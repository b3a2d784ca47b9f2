"""Vector stores of RAG frameworks over an index: a directory, a Milvus address, or a server.

langchain.py, llamaindex.py and haystack.py need their framework (the extras of these names) and stand above the rest:
reaching.py opens the index and runs one piece of work now, in a thread or awaited (blocking.py, awaiting.py); asking.py
puts a question by views, words or both, and filters what is found; citing.py says what a hit carries; pushing.py joins
what an index can tell of a filter.
"""

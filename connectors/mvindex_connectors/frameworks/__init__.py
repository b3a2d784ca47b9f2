"""Vector stores of RAG frameworks over an index: a directory, a Milvus address, or a server.

Each framework has a folder (langchain, llamaindex, haystack) that needs its package, the extra of the same name.
They share the modules beside this one, which import no framework:

connection.py: IndexHandle opens the index and runs an adapter's coroutines, in this thread or awaited on a server.
async_adapter.py: the index as AsyncIndexAPI, awaited; the one that blocks is in connection.py.
query.py: one query, the search for hits that pass a framework's filter, and MMR.
filter_pushdown.py: the part of a framework's filter that the index can evaluate.
citations.py: what a hit cites.
views.py: one view for each snippet of a text, and the progress of adding.

docs/contribute/add-a-framework.md shows how to add another one.
"""

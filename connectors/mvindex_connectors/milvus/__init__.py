"""An index in Milvus: Lite in this process, a server, or a cluster; docs/how-to/milvus.md describes the layout."""

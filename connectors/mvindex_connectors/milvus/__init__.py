"""An index in Milvus: Lite in this process, a server, or a cluster; docs/milvus.md describes the layout."""

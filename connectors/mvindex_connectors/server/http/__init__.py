"""JSON over HTTP, the search page and /metrics, beside gRPC: the same indexes, tokens, limits and errors."""

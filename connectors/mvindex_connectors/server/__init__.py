"""`mvindex serve`: indexes over gRPC and HTTP, each searched in micro-batches and written by one thread."""

"""`mvindex serve`: indexes behind gRPC and HTTP, each searched in micro-batches and written by one thread."""

"""Messages and stubs of the gRPC service, generated from schemas/mvindex/v1 by `make proto`; never edited."""

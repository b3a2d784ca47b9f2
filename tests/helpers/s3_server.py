"""A server of S3 on this machine, with a bucket of its own."""

import secrets
from contextlib import contextmanager

import pytest


@contextmanager
def s3_bucket(name=None):
    """Inside it, the name of a new bucket that fsspec reaches by s3://NAME."""
    import fsspec
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    # The servers of one process share their buckets.
    name = name or f"bucket-{secrets.token_hex(6)}"
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
            patch.setenv("AWS_ACCESS_KEY_ID", "someone")
            patch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
            patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
            fsspec.filesystem("s3").clear_instance_cache()
            fsspec.filesystem("s3").mkdir(name)
            yield name
    finally:
        server.stop()

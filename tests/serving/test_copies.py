"""Copies and pickles of clients: each connects anew, and no pickle holds a token."""

import asyncio
import copy
import os
import pickle  # noqa: TID251 - what joblib and DataLoader do

import numpy as np
import pytest
from serving_tools import fill, served

from mvindex.errors import ConfigError, ServerUnavailable
from mvindex_connectors.remote import Access, AsyncIndexClient, CallSettings, IndexClient, ShardedClient

TOKEN = "secret-" * 4
QUICK = CallSettings(timeout_s=20, retry_s=1)


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copies")
    fill(folder / "a.mvx")
    (folder / "tokens").write_text(f"read-only {TOKEN} tests\n")
    with served(f"--index=a={folder / 'a.mvx'}", "--token-file", folder / "tokens") as serving:
        yield serving


@pytest.mark.parametrize("copied", [lambda client: pickle.loads(pickle.dumps(client)), copy.copy, copy.deepcopy])
@pytest.mark.parametrize("kind", [IndexClient, lambda url, **given: ShardedClient([url], **given)])
def test_a_copy_of_a_client_connects_anew(serving, monkeypatch, copied, kind):
    monkeypatch.setenv("MVINDEX_TOKEN", TOKEN)
    query = np.ones(16)
    with kind(serving.url(), settings=QUICK) as client:
        with copied(client) as same:
            assert same.search(query) == client.search(query)
        assert len(client) == 50
        assert TOKEN.encode() not in pickle.dumps(client) and pickle.loads(pickle.dumps(QUICK)) == QUICK


def test_a_copy_of_an_awaited_client_connects_anew(serving, monkeypatch):
    monkeypatch.setenv("MVINDEX_TOKEN", TOKEN)

    async def run():
        async with AsyncIndexClient(serving.url()) as client, pickle.loads(pickle.dumps(client)) as same:
            return await same.count()

    assert asyncio.run(run()) == 50


def test_a_token_given_in_python_is_in_no_pickle_and_in_copies(serving):
    with IndexClient(serving.url(), access=Access(token=TOKEN)) as client:
        with copy.deepcopy(client) as same:
            assert len(same) == 50
        with pytest.raises(ConfigError, match=r"MVINDEX_TOKEN.*pickle") as refused:
            pickle.dumps(client)
        assert TOKEN not in str(refused.value)


def test_a_client_in_a_forked_process_says_so(serving):
    with IndexClient(serving.url(), access=Access(token=TOKEN)) as client:
        child = os.fork()
        if child == 0:
            try:
                client.info()
            except ServerUnavailable as err:
                os._exit(0 if "forked" in str(err) else 1)
            os._exit(2)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert len(client) == 50

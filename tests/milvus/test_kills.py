"""kill -9 of a writing client, and of the server: nothing acknowledged is lost, nothing is half-written."""

import numpy as np
import pytest

from tests.durability.kills.milvus import Rounds

ROUNDS = 3


def test_a_killed_writer_loses_nothing_and_leaves_nothing_half_written(place):
    rounds = Rounds(place, np.random.default_rng(11))
    for _ in range(ROUNDS):
        rounds.run()
    rounds.finish()
    assert rounds.acknowledged >= 0


# Shorter: test_loading.py restarts a server between a reader and a writer. Longer: bench/milvus_kills.py.
@pytest.mark.long
@pytest.mark.needs("milvus-server")
def test_a_killed_server_loses_nothing_and_its_writer_goes_on(server):
    with server.collection("?timeout=120") as place:
        rounds = Rounds(place, np.random.default_rng(12), server)
        for _ in range(ROUNDS):
            rounds.run()
        rounds.finish()
        assert rounds.acknowledged > 0

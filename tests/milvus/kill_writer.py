"""A writer to be killed: adds and replaces documents for ever, and says what was acknowledged. ADDRESS FIRST."""

import os
import sys

import numpy as np

import mvindex
from mvindex import Document

DIM = 8
BATCH = 24
# Documents are written again and again: number n in version v by the batch v * CYCLE + n // BATCH.
CYCLE = 6


def views_of(number, version):
    """The views that document `number` has in this version: from 1 to 5, of a length that names the version."""
    rng = np.random.default_rng([number, version])
    rows = rng.standard_normal((1 + (number + version) % 5, DIM))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float16).astype(np.float32)


def batch(number):
    """The documents and views of a batch."""
    version, part = divmod(number, CYCLE)
    numbers = range(part * BATCH, (part + 1) * BATCH)
    documents = [Document(f"d{each}", f"{each} {version}", metadata={"version": version}) for each in numbers]
    return documents, [views_of(each, version) for each in numbers]


def _say(line):
    """Nothing; a kill leaves the line whole or away: print() makes several writes of it where Python is unbuffered."""
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


def main(address, first):
    with mvindex.open(address) as index:
        number = first
        while True:
            _say(f"try {number}")
            index.add_views(*batch(number))
            _say(f"ack {number}")
            number += 1


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

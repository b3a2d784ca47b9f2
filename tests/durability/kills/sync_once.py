"""A process that syncs a folder into an index in small batches, and says when it begins and ends."""

import sys

import mvindex
from mvindex.io.sync import run
from tests.helpers.folders import Counting


def main(folder, place):
    run.CHUNK_DOCUMENTS = 8
    run._FILES_PER_FILTER = 4
    with mvindex.open(place) as index:
        index.use_encoder(Counting().encoder())
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        report = mvindex.sync_folder(index, folder)
        sys.stdout.write(f"{report.is_complete}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

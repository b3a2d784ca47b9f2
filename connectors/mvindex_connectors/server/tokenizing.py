"""Terms of long texts, found in a worker process: a thread would take the interpreter from all others again and again.

Where that fails, or takes longer than any ordinary text, the server finds them itself: nothing is stored without.
"""

from __future__ import annotations

import binascii
import json
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mvindex.errors import CorpusError
from mvindex.store.lexical.tokenizer import Lexical, Tokens
from mvindex_connectors.files.parsing import parse_data
from mvindex_connectors.server.citing import NICENESS

logger = logging.getLogger(__name__)

# CPU time of a worker for the texts of one commit: two to four times what the slowest of them take.
_CPU_S, _CPU_S_PER_MB = 2, 4


def tokenize_in_worker(texts: Sequence[str], lexical: Lexical) -> Tokens | None:
    """Return the terms of the texts as a worker finds them; None, and a line in the log, where it fails."""
    data = json.dumps([list(texts), lexical.value], ensure_ascii=False).encode()
    arrays: list[npt.NDArray[Any]] = []
    try:
        parts = parse_data("terms", data, _CPU_S + _CPU_S_PER_MB * len(data) // 10**6, NICENESS)
        for dtype in parts:
            content = bytearray()
            while (piece := next(parts)) is not None:
                content += binascii.a2b_base64(piece)
            arrays.append(np.frombuffer(content, dtype=dtype))
    except (CorpusError, OSError) as err:
        logger.warning("the terms of %d bytes are found in the server itself: %s", len(data), err)
        return None
    return Tokens(*arrays)

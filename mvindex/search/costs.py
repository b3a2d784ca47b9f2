"""Which of an engine that walks and the exact scan answers: the faster one, as a build has measured both.

It does not matter how many questions a call has: in any batch a question gets the same documents.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

# The numbers of documents that are measured; between them costs follow.
FEW, MANY = 10, 100
# What a filter costs that allows a share of the documents, measured by bench/graph_filters.py: a walk takes this power
# of the share times as long, a scan the sum of this part of its time and this multiple of the share, at most all of it.
_WALK_POWER = -0.6
_SCAN_LEAST, _SCAN_SLOPE = 0.1, 3.5


def is_scan_faster(measured: Mapping[str, Any], top_k: int, share: float, num_documents: int) -> bool:
    """Return whether the exact scan is the faster of the two.

    What was added since the build is scanned by both.

    Args:
        measured: What the build has measured, see SelfMeasured.
        top_k: How many documents are wanted.
        share: Of the documents that the engine covers, how many may be found, over 0.
        num_documents: How many are covered now, of all shards; some may have been taken in since it was measured.
    """
    walk = _ms(measured["ms_10"], measured["ms_100"], top_k) * share**_WALK_POWER
    scan = _ms(measured["exact_ms_10"], measured["exact_ms_100"], top_k) * num_documents / measured["documents"]
    return bool(scan * min(1.0, _SCAN_LEAST + _SCAN_SLOPE * share) < walk)


def _ms(few: float, many: float, top_k: int) -> float:
    """Return the milliseconds for so many documents, of those measured for few and for many."""
    place = math.log(top_k / FEW) / math.log(MANY / FEW)
    return few + min(max(place, 0.0), 1.0) * (many - few)

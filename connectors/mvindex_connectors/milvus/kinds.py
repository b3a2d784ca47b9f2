"""Index kinds by an allow-list per server, with their build and search parameters."""

from __future__ import annotations

import math
import re
from typing import Any

from mvindex.engines.auto import nprobe_for_hits
from mvindex.errors import ConfigError, Unsupported

# mvindex' name -> Milvus' own.
_MILVUS = {
    "flat": "FLAT",
    "hnsw": "HNSW",
    "ivf-flat": "IVF_FLAT",
    "ivf-sq8": "IVF_SQ8",
    "ivf-pq": "IVF_PQ",
    "ivf-rabitq": "IVF_RABITQ",
    "hnsw-sq": "HNSW_SQ",
    "diskann": "DISKANN",
}
FLAT = "flat"
QUANTISED = ("ivf-sq8", "ivf-pq", "ivf-rabitq", "hnsw-sq", "diskann")
# Built and measured there; Lite accepts other names too, and never builds them.
_LITE_KINDS = ("flat", "hnsw", "ivf-flat", "ivf-sq8")
_KINDS_2_3 = ("flat", "hnsw", "ivf-flat", "ivf-sq8", "ivf-pq")
# The server of the wheel keeps its data in local files. Where an index does not hold the vectors themselves, it removes
# the file of a segment's vectors as it reads them: they are lost.
_WHEEL, _KINDS_WHEEL = "-lite", ("flat", "hnsw", "ivf-flat")
_M, _EF_CONSTRUCTION = 16, 200
_EF, _NPROBE = 128, 16
_MAX_EF, _MAX_NLIST = 32_768, 65_536
# The first version with sparse vectors.
FIRST_SPARSE = (2, 4)
# Choices of tune(), cheapest first.
_EFS, _NPROBES = (32, 64, 128, 256, 512, 1024), (1, 2, 4, 8, 16, 32, 64, 128, 256)


def version_of(server: str) -> tuple[int, int]:
    """Return major and minor of a server's version, such as v2.3.5-lite; (0, 0) where there is none."""
    found = re.search(r"(\d+)\.(\d+)", server)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def kinds_of(server: str, is_lite: bool) -> tuple[str, ...]:
    """Return the kinds that this Milvus builds."""
    if is_lite:
        return _LITE_KINDS
    if server.endswith(_WHEEL):
        return _KINDS_WHEEL
    version = version_of(server)
    newer: tuple[str, ...] = ("diskann",) if version >= (2, 4) else ()
    newer += ("hnsw-sq",) if version >= (2, 5) else ()
    newer += ("ivf-rabitq",) if version >= (2, 6) else ()
    return _KINDS_2_3 + newer


def parse_kind(name: str, kinds: tuple[str, ...], server: str) -> str:
    """Return the kind of mvindex' or Milvus' own name; ConfigError if unknown, Unsupported if not built there."""
    known = name.lower().replace("_", "-")
    known = FLAT if known == "exact" else known
    if known not in _MILVUS:
        raise ConfigError(f"kind: expected one of {', '.join(kinds)} for this Milvus ({server}), got {name!r}")
    if known not in kinds:
        raise Unsupported(
            f"kind: expected one of {', '.join(kinds)}, which this Milvus ({server}) builds, got {name!r}"
        )
    return known


def milvus_name(kind: str) -> str:
    """Return Milvus' name of the kind."""
    return _MILVUS[kind]


def build_parameters(kind: str, num_views: int, dim: int, nlist: int | None = None) -> dict[str, int]:
    """Return the build parameters of an index over so many views."""
    if kind in ("hnsw", "hnsw-sq"):
        return {"M": _M, "efConstruction": _EF_CONSTRUCTION}
    if not kind.startswith("ivf"):
        return {}
    nlist = nlist or max(1, min(4 * math.isqrt(max(num_views, 1)), num_views // 39 or 1, _MAX_NLIST))
    if kind != "ivf-pq":
        return {"nlist": nlist}
    codes = next(codes for codes in range(max(dim // 2, 1), 0, -1) if dim % codes == 0)
    return {"nlist": nlist, "m": codes, "nbits": 8}


def search_parameters(kind: str, built: dict[str, Any], search: dict[str, int], limit: int) -> dict[str, int]:
    """Return the search parameters for `limit` rows: the search widens with them.

    A server refuses an ef below the limit; Lite loses rows silently.
    """
    if kind in ("hnsw", "hnsw-sq"):
        return {"ef": min(max(search.get("ef", _EF), limit), _MAX_EF)}
    if kind.startswith("ivf"):
        chosen = {"nprobe": _NPROBE, **search}
        return {"nprobe": nprobe_for_hits(chosen, int(built.get("nlist", 1)), int(built.get("views", 1)), limit)}
    if kind == "diskann":
        return {"search_list": max(search.get("search_list", 100), limit)}
    return {}


def choices(kind: str, built: dict[str, Any]) -> list[dict[str, int]]:
    """Return the search parameters that tune() tries, cheapest first."""
    if kind in ("hnsw", "hnsw-sq"):
        return [{"ef": ef} for ef in _EFS]
    if kind.startswith("ivf"):
        nlist = int(built.get("nlist", 1))
        return [{"nprobe": nprobe} for nprobe in _NPROBES if nprobe < nlist] + [{"nprobe": nlist}]
    return []

"""Which kind is chosen for which size: the figures worked by hand."""

import numpy as np
import pytest

import mvindex
from mvindex.engines.auto import Sizes, chosen_kind, code_bytes
from mvindex.engines.protocol import EXACT
from mvindex.errors import ConfigError

GIB = 1 << 30


@pytest.mark.parametrize(
    ("num_views", "dim", "memory_gib", "target", "kind"),
    [
        (100, 384, 8, 0.97, EXACT),
        (500_000, 384, 8, 0.97, EXACT),  # 192 MB a scan
        (600_000, 384, 8, 0.97, "graph"),  # 230 MB a scan; (192 + 141) B: .19 GiB
        (600_000, 384, 0.15, 0.97, "ivf-pq"),  # (96 + 8) B x 1.04: .06 GiB
        (20_000_000, 384, 64, 0.97, "ivf-pq"),  # hours to link
        (600_000, 384, 8, 1, EXACT),
        (168_122_592, 768, 64, 0.97, "ivf-pq"),  # (192 + 8) B x 1.04 = 208 B: 32.6 GiB
        (168_122_592, 768, 30, 0.97, "ivf-rabitq"),  # (96 + 16) B x 1.04 = 116.5 B: 18.2 GiB
    ],
)
def test_the_kind_follows_from_views_memory_and_target(num_views, dim, memory_gib, target, kind):
    chosen, why = chosen_kind(Sizes(num_views=num_views, dim=dim, memory_bytes=int(memory_gib * GIB)), target)
    assert chosen == kind and why


def test_what_fits_nowhere_is_refused_with_a_way_out():
    with pytest.raises(ConfigError, match="18.2 GiB as the smallest codes; there are 4.0 GiB .* shards"):
        chosen_kind(Sizes(num_views=168_122_592, dim=768, memory_bytes=4 * GIB), 0.97)


def test_a_build_that_is_not_told_says_what_it_chose(tmp_path):
    with mvindex.create(tmp_path / "x.mvx", dim=2) as index:
        index.add_views([mvindex.Document("1", "t")], np.ones((1, 1, 2)))
        report = index.admin.build()
        assert report.kind == "exact" and "1 views of 2 dimensions" in report.why
        assert index.admin.build("hnsw").why == "as given"


@pytest.mark.parametrize("kind", ["flat", "graph", "hnsw", "ivf-flat", "ivf-sq8", "ivf-pq", "ivf-rabitq"])
def test_the_bytes_of_codes_are_those_of_built_engines(tmp_path, kind):
    # Links take long to make, and the smallest codes must outweigh what a file of lists begins with.
    num_views, dim, nlist = 5_000 if kind in ("graph", "hnsw") else 20_000, 64, 16
    views = np.random.default_rng(1).standard_normal((num_views // 4, 4, dim))
    with mvindex.create(tmp_path / "x.mvx", dim=dim) as index:
        index.add_views([mvindex.Document(str(n), "t") for n in range(len(views))], views)
        report = index.admin.build(kind, nlist=nlist if kind.startswith("ivf") else None)
    assert report.engine_bytes == pytest.approx(num_views * code_bytes(kind, dim), rel=0.05)

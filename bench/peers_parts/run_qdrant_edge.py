"""Qdrant Edge, Qdrant's engine in the process: a point a view, 8k of them read; or a document a point of many vectors.

Its Python interface has no groups. Of a point of many vectors the best counts (MaxSim), which is the best view.
"""

import qdrant_edge as edge
from measuring import RISING, Setting, distinct

PACKAGES = ("qdrant-edge-py",)
_POINTS = 1024
_MULTIVECTOR = "multivector"


def build(data, work, variant):
    views, document = data.views, data.document
    many = edge.MultiVectorConfig(edge.MultiVectorComparator.MaxSim) if variant == _MULTIVECTOR else None
    vectors = edge.EdgeVectorParams(size=views.shape[1], distance=edge.Distance.Dot, multivector_config=many)
    shard = edge.EdgeShard.create(str(work / "views.edge"), edge.EdgeConfig(vectors=vectors))
    for points in batches(views, document, variant):
        shard.update(edge.UpdateOperation.upsert_points(points))
    shard.optimize()
    shard.flush()
    shard.close()


def batches(views, document, variant):
    """Yield lists of points: a document each with all of its views, or a view each with the number of its document."""
    if variant == _MULTIVECTOR:
        [borders] = (document[1:] != document[:-1]).nonzero()
        borders = [0, *(borders + 1).tolist(), len(views)]
        for begin in range(0, len(borders) - 1, _POINTS):
            some = borders[begin : begin + _POINTS + 1]
            spans = zip(some, some[1:], strict=False)
            yield [edge.Point(begin + n, views[first:last].tolist()) for n, (first, last) in enumerate(spans)]
        return
    for begin in range(0, len(views), _POINTS):
        rows = range(begin, min(begin + _POINTS, len(views)))
        yield [edge.Point(n, views[n].tolist(), {"document": int(document[n])}) for n in rows]


def open(_, work, __):
    return edge.EdgeShard.load(str(work / "views.edge"))


def request(vector, limit, ef, **more):
    query = edge.Query.Nearest(vector)
    params = None if ef is None else edge.SearchParams(hnsw_ef=ef)
    return edge.SearchRequest(query=query, limit=limit, params=params, **more)


def points_of_documents(shard, ef):
    def one(question, k):
        # A question of one vector: of a document's vectors the best one counts.
        found = shard.search(request([question.tolist()], k, ef))
        return [point.id for point in found]

    return Setting(label=f"a point a document, ef {ef or 'default'}", one=one)


def points_of_views(shard, ef):
    def one(question, k):
        found = shard.search(request(question.tolist(), 8 * k, ef, with_payload=True))
        return distinct([point.payload["document"] for point in found], k)

    return Setting(label=f"fetch 8k, ef {ef or 'default'}", one=one)


def settings(shard, variant):
    setting = points_of_documents if variant == _MULTIVECTOR else points_of_views
    yield [setting(shard, None)]
    yield [setting(shard, ef) for ef in RISING]

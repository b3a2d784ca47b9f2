"""zvec over views, grouped by their document inside its HNSW (group_by_query, a view a group), and plain 8k views."""

import zvec
from measuring import RISING, Setting, distinct

PACKAGES = ("zvec",)
_ROWS = 1024


def start():
    zvec.init(log_level=zvec.LogLevel.ERROR, query_threads=1, optimize_threads=1)


def build(data, work, _):
    start()
    views, document = data.views, data.document
    # Its documented defaults: m 50, ef_construction 500.
    vector = zvec.VectorSchema("view", zvec.DataType.VECTOR_FP32, views.shape[1], zvec.HnswIndexParam())
    fields = [zvec.FieldSchema("document", zvec.DataType.INT32, nullable=False)]
    made = zvec.create_and_open(str(work / "views.zvec"), zvec.CollectionSchema("views", fields=fields, vectors=vector))
    for begin in range(0, len(views), _ROWS):
        rows = range(begin, min(begin + _ROWS, len(views)))
        made.insert(
            [zvec.Doc(str(n), vectors={"view": views[n].tolist()}, fields={"document": int(document[n])}) for n in rows]
        )
    made.optimize()
    made.flush()


def open(_, work, __):
    start()
    return zvec.open(str(work / "views.zvec"))


def query(question, ef):
    return zvec.Query("view", vector=question.tolist(), param=None if ef is None else zvec.HnswQueryParam(ef=ef))


def grouped(made, ef):
    def one(question, k):
        found = made.group_by_query(query(question, ef), "document", k, 1, output_fields=["document"])
        return [int(group.group_by_value) for group in found]

    return Setting(label=f"grouped, ef {ef or '300 (default)'}", one=one)


def plain(made, ef):
    def one(question, k):
        found = made.query(query(question, ef), topk=8 * k, output_fields=["document"])
        return distinct([each.fields["document"] for each in found], k)

    return Setting(label=f"fetch 8k, ef {ef or '300 (default)'}", one=one)


def settings(made, _):
    yield [grouped(made, None)]
    yield [plain(made, None)]
    yield [grouped(made, ef) for ef in RISING]

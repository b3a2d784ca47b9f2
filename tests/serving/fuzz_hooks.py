"""What the description cannot say of the index that is fuzzed: it takes vectors of 16 dims within fp16, and no texts.

Schemathesis imports it. Values that are wrong by themselves stay as they are, so that they are refused as such.
"""

import schemathesis

DIM = 16


def are_all(holds, rows):
    return isinstance(rows, list) and rows != [] and all(map(holds, rows))


def is_vector(row):
    return are_all(lambda each: type(each) in (int, float), row)


def are_vectors(rows):
    return are_all(is_vector, rows)


def fitting(row):
    return [0.5 if row[n % len(row)] > 0 else -0.25 for n in range(DIM)]


@schemathesis.hook
def map_body(context, body):
    if not isinstance(body, dict):
        return body
    if is_vector(body.get("vector")):
        body["vector"] = fitting(body["vector"])
    if are_vectors(body.get("vectors")):
        body["vectors"] = [fitting(row) for row in body["vectors"]]
    text, documents = body.get("query"), body.get("documents")
    if isinstance(text, str) and text.strip() and "vector" not in body:
        body["vector"] = fitting([len(body.pop("query")) % 2])
    if isinstance(documents, list) and ("views" not in body or are_all(are_vectors, body["views"])):
        body["views"] = [[[0.5] * DIM]] * len(documents)
    return body

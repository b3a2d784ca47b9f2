"""Tenants: for a token that is bound to indexes or a filter nothing else exists, whichever call it makes."""

import asyncio
import contextlib
import json
from urllib.parse import quote, urlencode

import grpc
import pytest
from serving_tools import served, vectors
from test_http import ask

import mvindex
from mvindex import Document, QueryGroup
from mvindex.errors import ConfigError, MvindexError, NoSuchIndex, NotPermitted, QueryError
from mvindex.search.request import parse_request
from mvindex.v1 import documents_pb2, jobs_pb2, search_pb2, service_pb2
from mvindex.v1.service_pb2_grpc import MvindexServiceStub
from mvindex_connectors.remote import Access, AsyncIndexClient, CallSettings, IndexClient
from mvindex_connectors.server.http.openapi import OPERATIONS
from mvindex_connectors.server.tenants import TenantIndex
from mvindex_connectors.server.tokens import Tokens

A, B, ALL, NEWS, PREFIX, NONE = (f"{name}-0123456789abcdef" for name in ("a", "b", "all", "news", "prefix", "none"))
QUICK = CallSettings(timeout_s=20, retry_s=0)
ROWS = vectors(40, seed=5)
SECRET = "crown jewels"
FILTER_A, FILTER_B = '{"tenant": "a"}', '{"tenant": "b"}'
# Ways to look for what belongs to b.
FILTERS = [
    {"tenant": "b"},
    {"or": [{"tenant": "b"}, {"tenant": "a"}]},
    {"not": {"tenant": "a"}},
    {"id": {"in": [f"b{n}" for n in range(20)]}},
    {"tenant": {"nin": ["a"]}},
    {"and": []},
    {},
]
TOKENS = (
    f"read-write {A} ann indexes=wiki filter={FILTER_A}\n"
    f"read-write {B} bob filter={FILTER_B}\n"
    f"read-only {NEWS} indexes=news\n"
    f'read-write {PREFIX} prefix indexes=wiki filter={{"id": {{"gte": "p/", "lt": "p0"}}}}\n'
    f"read-write {NONE} none indexes=nope\n"
    f"read-write {ALL}\n"
)


def documents(tenant):
    """Documents of a tenant, half of whose views are every second row."""
    secret = SECRET if tenant == "b" else "plain words"
    return [Document(f"{tenant}{n}", f"{secret} {n}", f"title {n}", {"tenant": tenant, "n": n}) for n in range(20)]


@contextlib.contextmanager
def served_to_tenants(folder):
    """Serve one index with documents of a and b, by turns, and another one."""
    for name in ("wiki", "news"):
        with mvindex.create(folder / f"{name}.mvx", dim=16, lexical="english") as index:
            both = [each for pair in zip(documents("b"), documents("a"), strict=True) for each in pair]
            index.add_views(both, ROWS)
            index.admin.set_filter_fields({"tenant": "text"} if name == "wiki" else {})
    (folder / "tokens").write_text(TOKENS)
    (folder / "tokens").chmod(0o600)
    arguments = [f"--index={name}={folder / name}.mvx" for name in ("wiki", "news")]
    with served(*arguments, "--http", "0", "--token-file", folder / "tokens") as serving:
        yield serving


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    """A server for tests that write nothing."""
    with served_to_tenants(tmp_path_factory.mktemp("tenants")) as serving:
        yield serving


@pytest.fixture
def fresh(tmp_path):
    with served_to_tenants(tmp_path) as serving:
        yield serving


def client(serving, token=A, name="wiki"):
    return IndexClient(serving.url(name), access=Access(token=token), settings=QUICK)


def stub_of(channel, token):
    """Return a function that calls a method and returns its response, or its error, as text."""
    stub = MvindexServiceStub(channel)

    def call(method, request):
        descriptor = service_pb2.DESCRIPTOR.services_by_name["MvindexService"].methods_by_name[method]
        given = iter(request if isinstance(request, list) else [request]) if descriptor.client_streaming else request
        try:
            found = getattr(stub, method)(given, metadata=[("authorization", f"Bearer {token}")], timeout=20)
            return "".join(map(str, found)) if descriptor.server_streaming else str(found)
        except grpc.RpcError as err:
            return f"{err.code().name} {err.details()}"

    return call


def attacks(index):
    """Return requests by method that ask an index for documents of b, or try to change them."""
    queries = search_pb2.Texts(values=[SECRET])
    vector = {"dim": 16, "values": ROWS[0].tobytes()}
    search = {"index": index, "top_k": 50}
    add = {"index": index, "idempotency_key": "b-run"}
    stolen = documents_pb2.Document(id="b1", text="mine", metadata_json=FILTER_A)
    smuggled = documents_pb2.Document(id="new", text="x", metadata_json=FILTER_B)
    views = documents_pb2.Views(vectors=vector, counts=[1])
    return {
        "Search": [
            search_pb2.SearchRequest(**search, **given, mode=mode, exact=exact, filter_json=condition)
            for given in ({"vectors": vector, "terms": queries}, {"texts": queries})
            for mode in (search_pb2.MODE_DENSE, search_pb2.MODE_LEXICAL, search_pb2.MODE_HYBRID)
            for exact in (False, True)
            for condition in [None, *map(json.dumps, FILTERS)]
        ]
        + [search_pb2.SearchRequest(**search, texts=search_pb2.Texts(values=['+crown "jewels 1"']), operators=True,
                                    mode=search_pb2.MODE_LEXICAL),
           search_pb2.SearchRequest(**search, vectors=vector, combine=search_pb2.COMBINE_SUM),
           search_pb2.SearchRequest(**search, positives=["b1"]),
           search_pb2.SearchRequest(**search, positives=["a1"], negatives=["b2"]),
           search_pb2.SearchRequest(**search, positives=["a1"], offset=1, cursor=""),
           search_pb2.SearchRequest(**search, vectors=vector, shard=search_pb2.ShardSearch(all_candidates=True))],
        "Explain": [search_pb2.ExplainRequest(index=index, vector=vector, id="b1"),
                    search_pb2.ExplainRequest(index=index, vector=vector, ids=[f"b{n}" for n in range(20)])],
        "Encode": [search_pb2.EncodeRequest(index=index, texts=queries),
                   search_pb2.EncodeRequest(index=index, ids=["a1", "b1"])],
        "Add": [[documents_pb2.AddRequest(**add, chunk=chunk, documents=[document], views=views)]
                for chunk, document in ((1, stolen), (2, smuggled), (3, stolen))],
        "Delete": [documents_pb2.DeleteRequest(index=index, ids=["b1", "b2"]),
                   documents_pb2.DeleteRequest(index=index, ids=["b1"], idempotency_key="b-delete"),
                   *(documents_pb2.DeleteRequest(index=index, filter_json=json.dumps(each)) for each in FILTERS)],
        "Update": [documents_pb2.UpdateRequest(index=index, id="b1", metadata_json=FILTER_A),
                   documents_pb2.UpdateRequest(index=index, id="b1", metadata_json=FILTER_B),
                   documents_pb2.UpdateRequest(index=index, id="a1", metadata_json=FILTER_B)],
        "Get": [documents_pb2.GetRequest(index=index, ids=[f"b{n}" for n in range(20)])],
        "List": [documents_pb2.ListRequest(index=index, **given) for given in (
                     {}, {"after": "b1"}, {"with_ordinals": True}, {"with_ordinals": True, "after_ordinal": 3},
                     *({"filter_json": json.dumps(each)} for each in FILTERS))],
        "Info": [service_pb2.InfoRequest(index=index)],
        "Terms": [search_pb2.TermsRequest(index=index, texts=queries)],
        "Indexes": [service_pb2.IndexesRequest()],
        "StartJob": [jobs_pb2.StartJobRequest(index=index, **{work: kind}) for work, kind in (
                         ("compact", jobs_pb2.CompactIndex()), ("build", jobs_pb2.BuildEngine()),
                         ("tune", jobs_pb2.TuneEngine()), ("snapshot", jobs_pb2.SnapshotIndex(name="mine")),
                         ("drop", jobs_pb2.DropIndex(confirm=index)), ("create", jobs_pb2.CreateIndex(dim=4)))],
        "GetJob": [jobs_pb2.JobRequest(id="x")],
        "CancelJob": [jobs_pb2.JobRequest(id="x")],
        "ListJobs": [jobs_pb2.JobsRequest()],
    }  # fmt: skip


def http_attacks(index):
    """Return method, path and body of such requests by operation."""
    root = f"/v1/indexes/{index}"
    vector = ROWS[0].tolist()
    return {
        "indexes": [("GET", "/v1/indexes", None)],
        "info": [("GET", root, None)],
        "search": [("POST", f"{root}/search", {"vector": vector, "text": SECRET, "top_k": 50, "explain": True,
                                               "mode": mode} | ({} if condition is None else {"filter": condition}))
                   for mode in ("dense", "lexical", "hybrid") for condition in [None, *FILTERS]],
        "delete": [("POST", f"{root}/delete", {"ids": ["b1"], "idempotency_key": "b-delete"}),
                   *(("POST", f"{root}/delete", {"filter": each}) for each in FILTERS)],
        "getMany": [("POST", f"{root}/get", {"ids": ["b1", "b2"]})],
        "list": [("GET", f"{root}/documents?{urlencode(each)}", None)
                 for each in ({"limit": 1000}, {"after": "b1"}, *({"filter": json.dumps(one)} for one in FILTERS))],
        "add": [("POST", f"{root}/documents", {"documents": [{"id": "b1", "text": "mine", "metadata": {"tenant": "a"}}],
                                               "views": [[vector]], "idempotency_key": "b-run"}),
                ("POST", f"{root}/documents", {"documents": [{"id": "x", "metadata": {"tenant": "b"}}],
                                               "views": [[vector]]})],
        "get": [("GET", f"{root}/documents/b1", None)],
        "deleteOne": [("DELETE", f"{root}/documents/b1", None)],
        "update": [("PATCH", f"{root}/documents/b1", {"metadata": {"tenant": "a"}}),
                   ("PATCH", f"{root}/documents/a1", {"metadata": {"tenant": "b"}})],
        "startJob": [("POST", "/v1/admin/jobs", {"index": index, kind: {}}) for kind in ("compact", "build", "tune")],
        "listJobs": [("GET", "/v1/admin/jobs", None)],
        "getJob": [("GET", "/v1/admin/jobs/x", None)],
        "cancelJob": [("POST", "/v1/admin/jobs/x/cancel", None)],
        "metrics": [("GET", "/metrics", None)],
        "health": [("GET", "/healthz", None)],
        "ready": [("GET", "/readyz", None)],
        "live": [("GET", "/livez", None)],
    }  # fmt: skip


def everything_of_b(serving):
    with client(serving, B) as bob:
        return list(bob), [[(hit.id, hit.score) for hit in bob.search(row, top_k=20).hits] for row in ROWS[:3]]


def check_says_nothing(response):
    """Check that a response has no text of b, and no id of b that the request did not name."""
    assert SECRET not in response and "news" not in response and '"tenant": "b"' not in response, response
    assert not any(f"title {n}" in response and f"b{n}" in response for n in range(20)), response


def test_no_method_of_grpc_shows_or_changes_what_is_of_another_tenant(fresh):
    before = everything_of_b(fresh)
    methods = service_pb2.DESCRIPTOR.services_by_name["MvindexService"].methods_by_name
    table = attacks("wiki")
    assert set(table) == set(methods), "each method needs its attacks here"
    with grpc.insecure_channel(fresh.target) as channel:
        call, of_b = stub_of(channel, A), stub_of(channel, B)
        # The keys of b are known; a must neither be answered from them nor use them up.
        first = documents_pb2.DeleteRequest(index="wiki", ids=["nope"], idempotency_key="b-delete")
        assert of_b("Delete", first) == ""
        for method, requests in table.items():
            for request in requests:
                check_says_nothing(call(method, request))
        for method, requests in attacks("news").items():
            for request in requests:
                response = call(method, request)
                if "Job" in method:
                    assert response.startswith("PERMISSION_DENIED token: expected one of role admin"), response
                    continue
                assert method == "Indexes" or response == "NOT_FOUND index: expected one of wiki, got 'news'", response
    assert everything_of_b(fresh) == before


def test_the_attacks_show_documents_to_a_token_without_a_filter(serving):
    with grpc.insecure_channel(serving.target) as channel:
        call = stub_of(channel, ALL)
        for method in ("Search", "Get", "List"):
            shown = [SECRET in call(method, request) for request in attacks("wiki")[method]]
            assert sum(shown) > len(shown) / 4, method
    for operation in ("search", "getMany", "list", "get"):
        shown = [SECRET in json.dumps(ask(serving, *each, token=ALL)[2]) for each in http_attacks("wiki")[operation]]
        assert sum(shown) > len(shown) / 4, operation


def test_no_operation_of_http_shows_or_changes_what_is_of_another_tenant(fresh):
    before = everything_of_b(fresh)
    table = http_attacks("wiki")
    assert set(table) == {each.id for each in OPERATIONS}, "each operation needs its attacks here"
    for requests in table.values():
        for method, path, body in requests:
            status, _, answer = ask(fresh, method, path, body, token=A)
            assert status < 500
            check_says_nothing(json.dumps(answer))
    for operation, requests in http_attacks("news").items():
        for method, path, body in requests:
            status, _, answer = ask(fresh, method, path, body, token=A)
            assert status == 404 or "/news" not in path, (operation, answer)
            assert "/news" not in path or answer["error"]["message"] == "index: expected one of wiki, got 'news'"
    assert ask(fresh, "GET", "/metrics", token=A)[0] == 403
    assert ask(fresh, "GET", "/metrics", token=NEWS)[0] == 403
    assert ask(fresh, "GET", "/metrics", token=ALL)[0] == 200
    assert everything_of_b(fresh) == before


def test_a_tenant_finds_its_documents_as_if_no_other_were_there(serving):
    for mode in ("dense", "lexical", "hybrid"):
        check_finds_own(serving, {"top_k": 50, "mode": mode, "text": "plain words 3"})
    check_finds_own(serving, {"top_k": 50, "exact": True})


def check_finds_own(serving, options):
    own = [each.id for each in documents("a")]
    with client(serving) as ann, client(serving, ALL) as everyone:
        found = ann.search(ROWS[1], **options)
        expected = everyone.search(ROWS[1], filter={"tenant": "a"}, **options)
        assert [(hit.id, hit.score) for hit in found.hits] == [(hit.id, hit.score) for hit in expected.hits]
        assert sorted(hit.id for hit in found.hits) == sorted(own) and found.short_by == 0
        few = ann.search(ROWS[1], filter={"n": {"lt": 2}}, **options).hits
        assert sorted(hit.id for hit in few) == ["a0", "a1"]
        near = ann.search(like="a1", top_k=50)
        assert sorted(hit.id for hit in near) == sorted(each for each in own if each != "a1")
        group = ann.search(QueryGroup([ROWS[0], ROWS[2]], "sum"), top_k=50)
        assert sorted(hit.id for hit in group.hits) == sorted(own)


@pytest.mark.parametrize("convert", [None, list])
def test_a_document_that_becomes_another_tenants_during_a_search_stands_for_no_query(convert):
    class Service:
        name = "wiki"
        owner = "a"

        async def read(self, function):
            return function()

        def metadata_of(self, ids):
            return {doc_id: json.dumps({"tenant": self.owner}) for doc_id in ids}

        async def search(self, request, meter, convert):
            self.owner = "b"
            return ["what is near to b's document"]

    index = TenantIndex(Service(), {"tenant": "a"})
    with pytest.raises(QueryError, match="there is no document 'd1'"):
        asyncio.run(index.search(parse_request(None, like="d1"), None, convert))


def test_a_tenant_counts_and_lists_its_own(serving):
    with client(serving) as ann, client(serving, B, "news") as bob, client(serving, ALL) as everyone:
        info = ann.info()
        assert (info.documents, info.views, info.num_deleted, info.size_bytes, info.fresh_documents) == (
            20,
            20,
            0,
            0,
            0,
        )
        assert (info.copy_bytes, info.text_bytes, info.term_bytes) == (None, None, None)
        assert (len(ann), len(bob), len(everyone)) == (20, 20, 40)
        assert [each.id for each in ann] == [each.id for each in documents("a")]
        pages = list(ann.scan(limit=3)), list(ann.scan(after="a2", limit=3))
        assert [[each.id for each in page] for page in pages] == [["a0", "a1", "a2"], ["a3", "a4", "a5"]]
        assert "a1" in ann and "b1" not in ann and ann.get("b1") is None
        assert [each.id for each in ann.get(["b2", "a2", "nope", "a1"])] == ["a2", "a1"]
        assert list(ann.explain_all(ROWS[0], ["b1", "a3"])) == ["a3"]


def test_errors_are_the_same_for_another_tenants_id_and_for_none(serving):
    def message(call, doc_id):
        with pytest.raises(QueryError) as refused:
            call(doc_id)
        return str(refused.value).replace(doc_id, "?")

    with client(serving) as ann:
        for call in (
            lambda doc_id: ann.explain(ROWS[0], doc_id),
            lambda doc_id: ann.update(doc_id, metadata={"tenant": "a"}),
            lambda doc_id: list(ann.scan(after=doc_id)),
            lambda doc_id: ann.search(like=doc_id),
            lambda doc_id: ann.search(positives=["a1"], negatives=[doc_id]),
        ):
            assert message(call, "b1") == message(call, "zz")
    for method, path, body in (("GET", "", None), ("PATCH", "", {"metadata": {"tenant": "a"}})):
        there, _, hidden = ask(serving, method, f"/v1/indexes/wiki/documents/b1{path}", body, token=A)
        none, _, missing = ask(serving, method, f"/v1/indexes/wiki/documents/zz{path}", body, token=A)
        assert there == none == 404
        assert hidden["error"]["message"].replace("b1", "zz") == missing["error"]["message"]


def test_counts_of_all_documents_are_refused(serving):
    table = attacks("wiki")
    with grpc.insecure_channel(serving.target) as channel:
        call = stub_of(channel, A)
        for method, request in (
            ("Terms", table["Terms"][0]),
            ("Encode", table["Encode"][-1]),
            ("Search", table["Search"][-1]),
            ("List", documents_pb2.ListRequest(index="wiki", with_ordinals=True)),
        ):
            assert call(method, request).startswith("UNIMPLEMENTED wiki: a token with a filter")


def test_a_tenant_writes_only_what_its_filter_matches_and_nobody_elses_ids(fresh):
    with client(fresh) as ann, client(fresh, ALL) as everyone:
        new = Document("new", "x", "", {"tenant": "a"})
        assert ann.add_views([new], ROWS[:1]).added == 1 and ann.get("new") == new
        assert ann.add_views([Document("new", "y", "", {"tenant": "a"})], ROWS[:1]).replaced == 1
        ann.update("new", metadata={"tenant": "a", "n": 7})
        for metadata in ({}, {"tenant": "b"}, {"tenant": ["a"]}, {"tenant": {"a": 1}}, {"tenant": None}):
            with pytest.raises(NotPermitted, match="filter of this token"):
                ann.add_views([Document("other", "x", "", metadata)], ROWS[:1])
            with pytest.raises(NotPermitted, match="filter of this token"):
                ann.update("new", metadata=metadata)
        with pytest.raises(NotPermitted, match="no other tenant uses"):
            ann.add_views(
                [Document("fresh", "x", "", {"tenant": "a"}), Document("b1", "x", "", {"tenant": "a"})], ROWS[:2]
            )
        assert "fresh" not in everyone and everyone.get("b1") == documents("b")[1] and "other" not in everyone
        assert ann.delete(ids=["b1", "new", "nope"]) == 1
        assert ann.delete(filter={"n": {"lt": 3}}) == 3
        assert ann.delete(all=True) == 17 and len(ann) == 0 and len(everyone) == 20
        with pytest.raises(QueryError, match="with a condition"):
            ann.delete(filter={})


def test_a_filter_on_ids_keeps_secret_which_ids_are_in_use(fresh):
    with client(fresh, PREFIX) as prefix:
        assert prefix.add_views([Document("p/1", "x")], ROWS[:1]).added == 1
        assert [hit.id for hit in prefix.search(ROWS[0], top_k=5).hits] == ["p/1"]
        told = []
        for doc_id in ("b1", "zz"):
            with pytest.raises(NotPermitted) as refused:
                prefix.add_views([Document(doc_id, "x")], ROWS[:1])
            told.append(str(refused.value).replace(doc_id, "?"))
        assert told[0] == told[1]


def test_idempotency_keys_of_tenants_are_apart(fresh):
    """The same key and chunk of another tenant is another write."""
    with grpc.insecure_channel(fresh.target) as channel:
        for token, tenant in ((A, "a"), (B, "b")):
            document = documents_pb2.Document(
                id=f"run-{tenant}", text="x", metadata_json=json.dumps({"tenant": tenant})
            )
            views = documents_pb2.Views(vectors={"dim": 16, "values": ROWS[0].tobytes()}, counts=[1])
            request = documents_pb2.AddRequest(
                index="wiki", idempotency_key="k", chunk=1, documents=[document], views=views
            )
            for _ in range(2):
                assert "added: 1" in stub_of(channel, token)("Add", request)
    with client(fresh, ALL) as everyone:
        assert len(everyone) == 42


def test_indexes_that_a_token_is_not_bound_to_do_not_exist(serving):
    for token, names in ((A, ["wiki"]), (NEWS, ["news"]), (ALL, ["wiki", "news"]), (B, ["wiki", "news"]), (NONE, [])):
        assert ask(serving, "GET", "/v1/indexes", token=token)[2] == {"indexes": names}
    for token, name in ((A, "news"), (NEWS, "wiki"), (NONE, "wiki")):
        with pytest.raises(NoSuchIndex) as refused:
            client(serving, token, name)
        assert str(refused.value).count(name) == 1
    with client(serving, NEWS, "news") as news:
        assert len(news) == 40


def test_health_of_an_index_is_shown_to_whom_it_exists_for(serving):
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    with grpc.insecure_channel(serving.target) as channel:
        health = health_pb2_grpc.HealthStub(channel)

        def check(name, token=None):
            headers = [("authorization", f"Bearer {token}")] if token else []
            try:
                return health.Check(health_pb2.HealthCheckRequest(service=name), metadata=headers).status
            except grpc.RpcError as err:
                return err.code().name, err.details().replace(name, "?")

        def watched(name, token):
            try:
                request = health_pb2.HealthCheckRequest(service=name)
                return next(health.Watch(request, metadata=[("authorization", f"Bearer {token}")])).status
            except grpc.RpcError as err:
                return err.code().name

        assert check("") == 1
        assert check("wiki")[0] == check("nope")[0] == "UNAUTHENTICATED"
        assert check("wiki", A) == 1 and check("news", A) == check("nope", A)
        assert watched("wiki", A) == 1 and watched("news", A) == "NOT_FOUND"


def test_the_client_of_coroutines_sees_the_same(serving):
    async def look():
        async with AsyncIndexClient(serving.url("wiki"), access=Access(token=A), settings=QUICK) as ann:
            return await ann.count(), await ann.get("b1"), [each.id async for each in ann.scan(after="a17")]

    assert asyncio.run(look()) == (20, None, ["a18", "a19"])


def test_a_stream_ends_when_the_binding_of_its_token_changes(tmp_path):
    (tmp_path / "tokens").write_text(TOKENS)
    tokens = Tokens(tmp_path / "tokens")
    caller = tokens.authenticate(f"Bearer {A}")
    (tmp_path / "tokens").write_text(TOKENS.replace(FILTER_A, '{"tenant": "c"}'))
    tokens.reload()
    with pytest.raises(MvindexError, match="withdrawn"):
        tokens.check_known(caller)


@pytest.mark.parametrize(
    ("line", "indexes", "condition", "name"),
    [
        (f"read-only {A}", None, None, "token 1"),
        (f"read-only {A} ann", None, None, "ann"),
        (f"read-only {A} indexes=wiki,news", {"wiki", "news"}, None, "token 1"),
        (f"read-only\t{A}\tann\tindexes=wiki\tfilter={FILTER_A} ", {"wiki"}, {"tenant": "a"}, "ann"),
        (f"read-only {A} filter={FILTER_A}", None, {"tenant": "a"}, "token 1"),
        (f'read-only {A} filter={{"x": " filter=1 indexes=2"}}', None, {"x": " filter=1 indexes=2"}, "token 1"),
    ],
)
def test_a_line_of_the_token_file_binds_a_token(tmp_path, line, indexes, condition, name):
    (tmp_path / "tokens").write_text(line + "\n")
    caller = Tokens(tmp_path / "tokens").authenticate(f"Bearer {A}")
    assert (caller.indexes, caller.filter, caller.name) == (indexes and frozenset(indexes), condition, name)
    assert caller.is_bound == (indexes is not None or condition is not None)


@pytest.mark.parametrize(
    "binding",
    ["indexes=", "indexes=a,,b", "indexes=a indexes=b", "filter=", "filter={", "filter=[]", "filter={}", "filter=1",
     'filter={"and": [{}]}', 'filter={"n": {"nearly": 1}}', 'filter={"n": 1} indexes=wiki', "tenant=a b"],
)  # fmt: skip
def test_a_malformed_binding_is_refused(tmp_path, binding):
    (tmp_path / "tokens").write_text(f"read-write {A} {binding}\n")
    with pytest.raises(ConfigError, match="tokens:1") as refused:
        Tokens(tmp_path / "tokens")
    assert A not in str(refused.value)


def test_ids_with_slashes_are_compared_as_they_are(serving):
    path = f"/v1/indexes/wiki/documents/{quote('p/../b1', safe='')}"
    assert ask(serving, "GET", path, token=A)[0] == 404

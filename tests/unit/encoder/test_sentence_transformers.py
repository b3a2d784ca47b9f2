"""Checkpoints exported for sentence-transformers: its vectors are those of the checkpoint."""

import json

import pytest
from typer.testing import CliRunner

from mvindex.cli import app
from mvindex.encoder import load_encoder
from mvindex.encoder import sentence_transformers as exporting
from mvindex.encoder.checkpoint import read_checkpoint
from mvindex.encoder.checkpoint.families import BUILT_IN, SINGLE
from mvindex.encoder.registry import describe_queries
from mvindex.encoder.sentence_transformers import save_sentence_transformer
from mvindex.errors import CheckpointError, ConfigError, StoreError
from mvindex.records import Document
from mvindex_train.checkpoints import save_checkpoint
from tests.helpers.marks import full
from tests.helpers.st_folders import QUESTIONS, TEXTS, make_transformer, near, open_st, save_st, st_vectors
from tests.helpers.tiny_encoders import build, shaken
from tests.helpers.tiny_models import add_viewers, torch, write_settings

pytestmark = [pytest.mark.needs("sentence-transformers"), pytest.mark.usefixtures("plain_arithmetic")]
SEVERAL = [family for family in BUILT_IN if family != SINGLE]


def vectors_of(source, family=None):
    encoder = load_encoder(source, family=family, device="cpu")
    views = encoder.encode_documents([Document(str(number), text) for number, text in enumerate(TEXTS)])
    assert len(views.rows) == len(TEXTS)
    return views.rows, encoder.encode_queries(QUESTIONS)


def is_the_same(source, folder, family=None):
    """Exported, the checkpoint gives the same vectors to sentence-transformers, and to mvindex again."""
    exported = save_sentence_transformer(source, folder, family)
    expected = vectors_of(source, family)
    for found in (st_vectors(folder), vectors_of(folder)):
        near(found[0], expected[0])
        near(found[1], expected[1])
    assert exported.dim == expected[0].shape[1]
    assert read_checkpoint(folder).settings == read_checkpoint(source, SINGLE).settings
    return exported


def single(folder, kind, **settings):
    """A transformer with settings of its own, one vector a document; the texts fit its window."""
    window = 40 if kind == "bert" else 80
    lengths = settings.pop("lengths", {"document": window, "query": window})
    write_settings(make_transformer(folder, kind), family="single", lengths=lengths, **settings)
    return folder


@pytest.mark.parametrize(
    ("kind", "pooling"),
    [
        ("bert", "mean"),
        full("roberta", "cls"),
        full("mpnet", "weightedmean"),
        full("distilbert", "mean"),
        ("t5", "mean"),
        full("qwen2", "lasttoken"),
    ],
)
def test_one_vector_a_document_is_the_same_there(tmp_path, kind, pooling):
    exported = is_the_same(single(tmp_path / "own", kind, pooling=pooling), tmp_path / "st")
    assert exported.modules == ("Transformer", "Pooling", "Normalize")


def test_no_pooler_is_drawn_at_random_there(tmp_path):
    save_sentence_transformer(single(tmp_path / "own", "bert"), tmp_path / "st")
    assert open_st(tmp_path / "st")[0].model.pooler is None


def test_prompts_and_raw_products_are_kept(tmp_path):
    prompts = {"query": "the red: ", "document": "a "}
    source = single(tmp_path / "own", "bert", prompts=prompts, normalise=False, similarity="dot", temperature=0.5)
    exported = is_the_same(source, tmp_path / "st")
    assert exported.modules == ("Transformer", "Pooling")
    assert open_st(tmp_path / "st").similarity_fn_name == "dot"


def test_each_side_has_its_length(tmp_path):
    source = single(tmp_path / "own", "bert", lengths={"document": 30, "query": 8})
    save_sentence_transformer(source, tmp_path / "st")
    module = open_st(tmp_path / "st")[0]
    assert (module.max_seq_length, module.document_length, module.query_length) == (30, 30, 8)
    settings = read_checkpoint(tmp_path / "st").settings
    assert (settings.document_length, settings.query_length) == (30, 8)


def test_lower_case_and_dense_modules_are_kept(tmp_path):
    source = save_st(tmp_path / "source", "roberta", dense=[(16, torch.nn.Tanh()), (24, None)])
    path = source / "sentence_bert_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"do_lower_case": True}))
    exported = is_the_same(source, tmp_path / "st", "single")
    assert exported.modules == ("Transformer", "Pooling", "Dense", "Dense", "Normalize")
    assert exported.dim == 24


@pytest.mark.parametrize(("lora_rank", "separate"), [(None, True), (4, False), full(None, False), full(4, True)])
def test_trained_weights_and_adapters_are_merged(tmp_path, lora_rank, separate):
    base = make_transformer(tmp_path / "base", "bert")
    encoder = shaken(build(base, "single", lora_rank=lora_rank, separate=separate, pooling="cls")).eval()
    save_checkpoint(encoder, tmp_path / "own", "card")
    exported = is_the_same(tmp_path / "own", tmp_path / "st")
    assert exported.modules == (("Router",) if separate else ("Transformer", "Pooling")) + ("Normalize",)
    assert not (tmp_path / "st/adapter_config.json").exists()
    with torch.no_grad():
        trained = (
            encoder.encode_documents([Document(text, text) for text in TEXTS]).rows,
            encoder.encode_queries(QUESTIONS),
        )
    for found, expected in zip(st_vectors(tmp_path / "st"), trained, strict=True):
        near(found, expected.numpy())


@pytest.mark.parametrize("family", SEVERAL)
def test_a_family_of_several_views_is_refused_with_its_reason(tmp_path, family):
    source = make_transformer(tmp_path / "own", "bert")
    write_settings(source, family=family.name, max_views=3)
    with pytest.raises(ConfigError) as caught:
        save_sentence_transformer(source, tmp_path / "st")
    assert f"the family {family.name!r} cannot be exported: {family.no_export}" in str(caught.value)
    assert not (tmp_path / "st").exists()


@pytest.mark.parametrize("family", ["snippets", full("kmeans"), full("poly")])
def test_it_exports_as_one_vector_a_document_where_that_is_asked_for(tmp_path, family):
    encoder = shaken(build(make_transformer(tmp_path / "base", "bert"), family)).eval()
    save_checkpoint(encoder, tmp_path / "own", "card")
    is_the_same(tmp_path / "own", tmp_path / "st", "single")
    near(st_vectors(tmp_path / "st")[1], load_encoder(tmp_path / "own").encode_queries(QUESTIONS))


def test_questions_behind_a_token_of_their_own_are_refused(tmp_path):
    source = add_viewers(make_transformer(tmp_path / "own", "bert"), 3, "viewers", pooling="cls")
    with pytest.raises(ConfigError, match=r"of the family 'viewers', is the state of a token of its own, \[VIE\]"):
        save_sentence_transformer(source, tmp_path / "st", "single")
    write_settings(source, family="viewers", max_views=3, pooling="mean")
    is_the_same(source, tmp_path / "st", "single")


def test_what_is_there_is_left_alone(tmp_path):
    source, target = single(tmp_path / "own", "bert"), tmp_path / "st"
    target.mkdir()
    (target / "note").write_text("mine")
    with pytest.raises(ConfigError, match="is there already; expected a new or an empty folder"):
        save_sentence_transformer(source, target)
    assert [path.name for path in target.iterdir()] == ["note"]
    (target / "note").unlink()
    assert save_sentence_transformer(source, target).folder == str(target)
    with pytest.raises(ConfigError, match="is there already"):
        save_sentence_transformer(source, source / "config.json")


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    source = single(tmp_path / "own", "bert")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exporting, "write_card", full)
    with pytest.raises(StoreError, match="st: cannot be written: No space left on device"):
        save_sentence_transformer(source, tmp_path / "st")
    assert [path.name for path in tmp_path.iterdir()] == ["own"]


def test_the_card_names_licence_and_base_where_they_are_known(tmp_path):
    source = single(tmp_path / "own", "bert")
    exported = save_sentence_transformer(source, tmp_path / "plain")
    assert (exported.licence, exported.base) == (None, None)
    card = (tmp_path / "plain/README.md").read_text()
    assert "Licence: not known" in card and "license:" not in card and str(tmp_path) not in card
    (source / "README.md").write_text("---\ntags: [a]\nlicense: 'mit'\n---\nlicense: other\n")
    write_record(source, "google-bert/bert-base-uncased@0123")
    exported = save_sentence_transformer(source, tmp_path / "told")
    assert (exported.licence, exported.base) == ("mit", "google-bert/bert-base-uncased")
    card = (tmp_path / "told/README.md").read_text()
    assert card.startswith("---\n") and "\nlicense: mit\nbase_model: google-bert/bert-base-uncased\n" in card
    assert "Family: `single`" in card and "Licence: mit." in card
    write_record(source, str(tmp_path / "base"))
    assert save_sentence_transformer(source, tmp_path / "local").base is None


def write_record(folder, base):
    (folder / "training.json").write_text(json.dumps({"config": {"encoder": {"base": base}}}))


@pytest.mark.needs("minilm")
def test_the_command_exports_the_packaged_adapter(tmp_path):
    target = tmp_path / "st"
    done = CliRunner().invoke(app, ["export-encoder", "minilm-snippets", str(target), "--family", "single", "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert (report["family"], report["dim"], report["licence"]) == ("single", 384, "apache-2.0")
    assert report["base"] == "sentence-transformers/all-MiniLM-L6-v2" and report["folder"] == str(target)
    assert report["loads_with"] == "sentence_transformers.SentenceTransformer"
    exported = load_encoder(target, family="single", device="cpu")
    assert describe_queries(exported.spec).startswith("ONNX Runtime")
    texts = ["The oil crisis began in October 1973.", "Marie Curie was born in Warsaw."]
    encoder = load_encoder("minilm-snippets", family="single", device="cpu")
    rows, queries = st_vectors(target, texts=texts, questions=texts)
    near(rows, encoder.encode_documents([Document(text, text) for text in texts]).rows)
    near(queries, encoder.encode_queries(texts))


def test_a_late_interaction_folder_is_refused_by_its_mask(tmp_path):
    import sentence_transformers

    source = make_transformer(tmp_path / "own", "bert")
    model = sentence_transformers.MultiVectorEncoder(str(source), device="cpu")
    model.save(str(tmp_path / "late"), create_model_card=False)
    with pytest.raises(CheckpointError, match="is 'MultiVectorMask', which is not supported"):
        read_checkpoint(tmp_path / "late")

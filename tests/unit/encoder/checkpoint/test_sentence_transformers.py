"""Folders of sentence-transformers as encoders: their vectors are its own."""

import json
import shutil

import numpy as np
import pytest

from mvindex.corpus.text.sentences import split_snippets
from mvindex.encoder import load_encoder
from mvindex.encoder.checkpoint import read_checkpoint
from mvindex.errors import CheckpointError
from mvindex.records import Document
from tests.helpers.marks import full
from tests.helpers.st_folders import QUESTIONS, TEXTS, make_transformer, near, save_st, st_vectors
from tests.helpers.tiny_models import Reference, torch, transformers, unit

pytestmark = [pytest.mark.needs("sentence-transformers"), pytest.mark.usefixtures("plain_arithmetic")]

TANH, PLAIN = torch.nn.Tanh(), None


def vectors_of(folder, texts=TEXTS, questions=QUESTIONS):
    """Documents and questions as mvindex encodes them, one vector each."""
    encoder = load_encoder(folder, family="single", device="cpu")
    documents = [Document(str(number), text) for number, text in enumerate(texts)]
    rows, queries = encoder.encode_documents(documents).rows, encoder.encode_queries(questions)
    assert rows.shape[1] == queries.shape[1] == encoder.dim
    return rows, queries


def agrees(folder, **how):
    for found, expected in zip(vectors_of(folder), st_vectors(folder, **how), strict=True):
        near(found, expected)


KINDS = ["bert", "roberta", "minilm", "modernbert", "distilbert", "mpnet", "xlm-roberta", "t5", "qwen2"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pooling", ["mean", full("lasttoken")])
def test_every_backbone_gives_its_vectors(tmp_path, kind, pooling):
    agrees(save_st(tmp_path / "st", kind, pooling=pooling))


def test_the_encoder_of_an_encoder_decoder_is_taken_alone(tmp_path):
    """As GTR and sentence-T5 are: weights of both halves, of which the pooled states are the encoder's."""
    folder = save_st(tmp_path / "st", "t5", dense=[(24, PLAIN)])
    config = transformers.AutoConfig.from_pretrained(folder)
    config.is_encoder_decoder = True
    whole = transformers.T5Model(config)
    whole.encoder.load_state_dict(transformers.T5EncoderModel.from_pretrained(folder).encoder.state_dict())
    transformers.utils.logging.disable_progress_bar()
    whole.save_pretrained(folder)
    assert json.loads((folder / "config.json").read_text())["is_encoder_decoder"]
    agrees(folder)


@pytest.mark.parametrize("pooling", ["cls", "weightedmean", "mean_sqrt_len_tokens"])
def test_every_pooling_gives_its_vectors(tmp_path, pooling):
    agrees(save_st(tmp_path / "st", "bert", pooling=pooling))


@pytest.mark.parametrize(
    "dense", [[(16, TANH)], [(48, PLAIN)], [(16, torch.nn.GELU()), (24, torch.nn.ReLU()), (8, torch.nn.SiLU())]]
)
@pytest.mark.parametrize("family", ["single", full("snippets")])
def test_dense_modules_are_followed(tmp_path, dense, family):
    folder = save_st(tmp_path / "st", "bert", pooling="cls", dense=dense)
    agrees(folder)
    encoder = load_encoder(folder, family=family, device="cpu")
    assert encoder.dim == encoder.spec["dim"] == dense[-1][0]
    assert encoder.encode_documents([Document("1", TEXTS[0])]).rows.shape[1] == dense[-1][0]


def test_a_snippet_goes_through_the_dense_modules_as_a_whole_text_does(tmp_path):
    folder = save_st(tmp_path / "st", "bert", dense=[(16, TANH)])
    text = TEXTS[2]
    reference = Reference(folder)
    weights = safetensors_of(folder / "2_Dense/model.safetensors")
    states = reference.states([reference.cls, *reference.tokens(text), reference.sep])[1:-1]
    sizes = [len(reference.tokens(text[begin:end])) for begin, end in split_snippets(text, 8)]
    means = [part.mean(axis=0) for part in np.split(states, np.cumsum(sizes)[:-1])]
    expected = unit([np.tanh(weights["linear.weight"] @ mean + weights["linear.bias"]) for mean in means])
    assert len(expected) == 2
    near(load_encoder(folder, device="cpu").encode_documents([Document("1", text)]).rows, expected)


def safetensors_of(path):
    from safetensors.numpy import load_file

    return load_file(path)


def test_prompts_go_before_questions_and_documents(tmp_path):
    folder = save_st(tmp_path / "st", "bert", prompts={"query": "the red: ", "document": "a ", "other": "he "})
    agrees(folder)
    assert not np.allclose(vectors_of(folder)[1], vectors_of(save_st(tmp_path / "bare", "bert"))[1], atol=0.01)


@pytest.mark.parametrize("prompts", [{"other": "he "}, {"other": "he ", "query": "", "document": "a "}])
def test_a_default_prompt_gives_way_to_those_of_the_two_sides(tmp_path, prompts):
    folder = save_st(tmp_path / "st", "bert", prompts=prompts)
    change(folder / "config_sentence_transformers.json", default_prompt_name="other")
    agrees(folder)


def test_a_passage_prompt_is_the_documents(tmp_path):
    """encode_document() is documented to take it too, and does not where `document` is unset."""
    from tests.helpers.st_folders import open_st

    folder = save_st(tmp_path / "st", "bert", prompts={"query": "the ", "passage": "a red "})
    expected = open_st(folder).encode(TEXTS, prompt_name="passage", show_progress_bar=False)
    near(vectors_of(folder)[0], expected)


def test_a_dot_product_model_keeps_its_norms_and_others_are_compared_by_cosine(tmp_path):
    folder = save_st(tmp_path / "st", "bert", normalize=False, similarity="dot", dense=[(16, PLAIN)])
    agrees(folder)
    assert not np.allclose(np.linalg.norm(vectors_of(folder)[0], axis=1), 1, atol=0.1)
    agrees(save_st(tmp_path / "other", "bert", normalize=False), normalize=True)


def test_the_scaled_mean_is_refused_where_its_length_counts(tmp_path):
    folder = save_st(tmp_path / "st", "bert", pooling="mean_sqrt_len_tokens", normalize=False, similarity="dot")
    with pytest.raises(CheckpointError, match="pooling by mean_sqrt_len_tokens; expected mean"):
        read_checkpoint(folder)


def test_lower_case_is_done_for_a_tokenizer_that_does_not(tmp_path):
    folder = save_st(tmp_path / "st", "roberta")
    change(folder / "sentence_bert_config.json", do_lower_case=True)
    agrees(folder)
    rows, _ = vectors_of(folder, ["THE CAT SAT", "the cat sat"])
    near(rows[0], rows[1])


def test_the_length_is_found_where_either_generation_keeps_it(tmp_path):
    folder = save_st(tmp_path / "st", "bert", max_seq_length=12)
    assert "max_seq_length" not in json.loads((folder / "sentence_bert_config.json").read_text())
    settings = read_checkpoint(folder).settings
    assert (settings.document_length, settings.query_length) == (12, 12)
    change(folder / "sentence_bert_config.json", max_seq_length=10, query_length=6, document_length=1000)
    settings = read_checkpoint(folder).settings
    assert (settings.document_length, settings.query_length) == (40, 6)


def test_a_text_that_is_cut_there_takes_several_windows_here(tmp_path):
    folder = save_st(tmp_path / "st", "bert", max_seq_length=12)
    rows, _ = vectors_of(folder)
    expected, _ = st_vectors(folder)
    near(rows[[1, 3]], expected[[1, 3]])
    assert not np.allclose(rows[0], expected[0], atol=0.01)


def test_the_files_of_older_versions_are_read(tmp_path):
    folder = tmp_path / "old"
    shutil.copytree(make_transformer(tmp_path / "plain", "distilbert"), folder / "0_Transformer")
    kinds = ["Transformer", "Pooling", "Normalize"]
    write(
        folder / "modules.json",
        [
            {"idx": row, "name": str(row), "path": f"{row}_{kind}", "type": f"sentence_transformers.models.{kind}"}
            for row, kind in enumerate(kinds)
        ],
    )
    flags = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": False}
    write(folder / "1_Pooling/config.json", {"word_embedding_dimension": 32, **flags})
    (folder / "2_Normalize").mkdir()
    write(folder / "0_Transformer/sentence_distilbert_config.json", {"max_seq_length": 100, "do_lower_case": False})
    agrees(folder)
    assert read_checkpoint(folder).settings.document_length == 100


def test_a_titled_document_is_its_joined_text(tmp_path):
    for kind in ("bert", "roberta", "xlm-roberta"):
        folder = save_st(tmp_path / kind, kind)
        encoder = load_encoder(folder, family="single", device="cpu")
        rows = encoder.encode_documents([Document("1", TEXTS[0], "The old dog")]).rows
        near(rows, st_vectors(folder, texts=[f"The old dog\n{TEXTS[0]}"])[0])


def test_an_index_is_made_with_such_a_folder(tmp_path):
    import mvindex

    folder = save_st(tmp_path / "st", "mpnet", dense=[(16, TANH)], prompts={"query": "he "})
    with mvindex.create(tmp_path / "x.mvx", encoder=load_encoder(folder, device="cpu")) as index:
        index.add([Document(str(number), text) for number, text in enumerate(TEXTS)])
    with mvindex.open(tmp_path / "x.mvx", device="cpu") as index:
        assert index.dim == 16
        hits = index.search(TEXTS[1], top_k=2, mode="dense").hits
    best = index_scores(folder)
    assert [hit.id for hit in hits] == [str(number) for number in np.argsort(-best)[:2]]
    near([hit.score for hit in hits], np.sort(best)[::-1][:2].astype(np.float64))


def index_scores(folder):
    """The best view's score of each text for the second one as a question, views rounded as an index stores them."""
    encoder = load_encoder(folder, device="cpu")
    views = encoder.encode_documents([Document(str(number), text) for number, text in enumerate(TEXTS)])
    scores = views.rows.astype(np.float16).astype(np.float64) @ encoder.encode_queries([TEXTS[1]])[0]
    return np.maximum.reduceat(scores, views.starts[:-1])


@pytest.mark.needs("minilm")
def test_the_packaged_model_gives_its_vectors():
    texts = ["The oil crisis began in October 1973. Members of OPEC proclaimed an embargo!", "Marie Curie"]
    questions = ["when did the oil crisis begin?", "who was born in Warsaw?"]
    expected = st_vectors(read_checkpoint("minilm").folder, texts=texts, questions=questions)
    for found, wanted in zip(vectors_of("minilm", texts, questions), expected, strict=True):
        near(found, wanted)


def change(path, **values):
    write(path, json.loads(path.read_text(encoding="utf-8")) | values)


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")

"""A tiny random BERT against plain slow code: one document at a time, fp32, the text tokenised as a whole."""

import json
import re
import sys
from base64 import b64encode

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

from mvindex.corpus.text.parts import split_parts  # noqa: E402 - as above
from mvindex.corpus.text.sentences import merge_sentences, split_sentences  # noqa: E402 - as above
from mvindex.encoder import device as devices  # noqa: E402 - only where torch is
from mvindex.encoder import encoder_from_spec, load_encoder, transformer  # noqa: E402 - as above
from mvindex.encoder.batches import BatchShape  # noqa: E402 - as above
from mvindex.errors import CheckpointError, ConfigError, EncoderError, ExtraMissing  # noqa: E402 - as above
from mvindex.plugins import install_command  # noqa: E402 - as above
from mvindex.records import Document  # noqa: E402 - as above

WORDS = "the a cat dog sat ran on under mat rug it was he she red blue old new house river".split()
POSITIONS = 40
FP32_ATOL = 1e-5

LONG = " ".join(f"{subject} {verb} on the {thing} ." for subject in ("It", "He", "She") for verb in ("sat", "ran")
                for thing in ("mat", "rug", "house"))  # fmt: skip
DOCUMENTS = [
    Document("short", "The cat sat. It ran under the old mat! Was it red?", "Cat"),
    Document("no title", "A dog ran. He was new"),
    Document("many sentences", LONG, "the old house"),
    Document("one long sentence", "the river was blue and " * 40, "river"),
    Document("title only", "", "the red dog"),
    Document("odd words", "Zebras unhouse the\u0301 cat.  \n\n xyz?", "it"),
]


def split_snippets(text, max_snippets):
    return merge_sentences(split_parts(text), max_snippets)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A BERT of 2 layers and 40 positions, its tokenizer set to cut and pad, as published ones are."""
    folder = tmp_path_factory.mktemp("tiny")
    torch.manual_seed(0)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS, *".?!:,", *"abcdefghijklmnopqrstuvwxyz"]
    pieces += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=POSITIONS, initializer_range=0.4,
    )  # fmt: skip
    transformers.BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    ends = [(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=ends)
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=8)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **names}), encoding="utf-8"
    )
    return folder


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Tiny products on several threads of a busy machine mostly wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def in_fp32(monkeypatch, request):
    if "as_the_machine_computes" not in request.fixturenames:
        monkeypatch.setattr(transformer, "document_dtype", lambda device: torch.float32)


@pytest.fixture
def as_the_machine_computes():
    """Marks a test that wants the document type of this machine."""


@pytest.fixture(scope="module")
def plain(folder):
    return Plain(folder)


class Plain:
    """The families in plain code."""

    def __init__(self, folder):
        self.model = transformers.AutoModel.from_pretrained(folder).eval()
        self.tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()

    def states(self, ids):
        with torch.no_grad():
            return self.model(input_ids=torch.tensor([ids])).last_hidden_state[0].double().numpy()

    def tokens(self, text):
        encoding = self.tokenizer.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets

    def inputs(self, document, split=split_sentences):
        """Return each window's states, the start of its text tokens, and their character offsets."""
        title = self.tokens(document.title)[0] if document.text else []
        ids, offsets = self.tokens(document.text or document.title)
        room = POSITIONS - 2 - len(title)
        windows, window = [], []
        for sentence in split(document.text) or [(0, len(document.title))]:
            own = [row for row, (begin, end) in enumerate(offsets) if sentence[0] <= begin < sentence[1]]
            if window and len(window) + len(own) > room:
                windows.append(window)
                window = []
            window = window + own
            while len(window) > room:
                windows.append(window[:room])
                window = window[room:]
        for rows in [*windows, window]:
            states = self.states([2, *title, *(ids[row] for row in rows), 3])
            yield states, 1 + len(title), [offsets[row] for row in rows]

    def snippets(self, document, max_views=8):
        spans = split_snippets(document.text, max_views) or [(0, len(document.title))]
        members = [[] for _ in spans]
        for states, first, offsets in self.inputs(document, split_parts):
            for row, (begin, _) in enumerate(offsets):
                [at] = [at for at, span in enumerate(spans) if span[0] <= begin < span[1]]
                members[at].append(states[first + row])
        return unit(np.array([np.mean(states, axis=0) for states in members]))

    def single(self, document):
        return unit(np.concatenate([states for states, _, _ in self.inputs(document)]).mean(axis=0)[None])

    def query(self, text):
        ids = self.tokens(text)[0]
        room = POSITIONS - 2
        parts = [ids[begin : begin + room] for begin in range(0, len(ids), room)] or [[]]
        return unit(np.concatenate([self.states([2, *part, 3]) for part in parts]).mean(axis=0))


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def rows_of(views, number):
    return views.rows[views.starts[number] : views.starts[number + 1]]


def configured(folder, tmp_path, files):
    """A copy of the checkpoint by links, with JSON files of its own."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in folder.iterdir():
        if path.name not in files:
            (copy / path.name).symlink_to(path)
    for name, content in files.items():
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).write_text(json.dumps(content), encoding="utf-8")
    return copy


@pytest.mark.parametrize("max_views", [1, 2, 8])
def test_snippets_are_means_of_their_own_tokens_read_with_title_and_neighbours(folder, plain, max_views):
    views = load_encoder(folder, max_views=max_views).encode_documents(DOCUMENTS)
    for number, document in enumerate(DOCUMENTS):
        expected = plain.snippets(document, max_views)
        np.testing.assert_allclose(rows_of(views, number), expected, atol=FP32_ATOL, err_msg=document.id)
    assert views.rows.dtype == np.float32


def test_the_spans_of_snippets_are_those_of_the_splitter(folder):
    views = load_encoder(folder, max_views=3).encode_documents(DOCUMENTS)
    expected = [span for document in DOCUMENTS for span in split_snippets(document.text, 3) or [(-1, -1)]]
    assert views.spans.tolist() == [list(span) for span in expected]


def test_single_is_the_mean_over_every_token_of_every_window(folder, plain):
    views = load_encoder(folder, family="single").encode_documents(DOCUMENTS)
    expected = np.concatenate([plain.single(document) for document in DOCUMENTS])
    np.testing.assert_allclose(views.rows, expected, atol=FP32_ATOL)
    assert views.starts.tolist() == list(range(len(DOCUMENTS) + 1))
    assert views.spans.tolist() == [[0, len(document.text)] if document.text else [-1, -1] for document in DOCUMENTS]


def test_cls_pooling_takes_the_first_state(folder, plain, tmp_path):
    copy = configured(folder, tmp_path, {"1_Pooling/config.json": {"pooling_mode_cls_token": True}})
    encoder = load_encoder(copy, family="single")
    expected = unit(np.array([next(plain.inputs(DOCUMENTS[0]))[0][0], next(plain.inputs(DOCUMENTS[1]))[0][0]]))
    np.testing.assert_allclose(encoder.encode_documents(DOCUMENTS[:2]).rows, expected, atol=FP32_ATOL)
    states = plain.states([2, *plain.tokens("the cat")[0], 3])
    np.testing.assert_allclose(encoder.encode_queries(["the cat"])[0], unit(states[0]), atol=FP32_ATOL)


def test_a_query_is_the_mean_over_all_its_windows(folder, plain):
    queries = ["the cat", "Was it?", LONG, "", "zebra " * 50]
    expected = np.array([plain.query(query) for query in queries])
    found = load_encoder(folder).encode_queries(queries)
    np.testing.assert_allclose(found, expected, atol=FP32_ATOL)
    assert (found.dtype, found.shape) == (np.float32, (5, 16))


def test_prompts_are_read_before_the_text(folder, plain, tmp_path):
    prompts = {"query": "she ran: ", "document": "old house: "}
    encoder = load_encoder(configured(folder, tmp_path, {"config_sentence_transformers.json": {"prompts": prompts}}))
    np.testing.assert_allclose(encoder.encode_queries(["the cat"])[0], plain.query("she ran: the cat"), atol=FP32_ATOL)
    # For a document the prompt is context, as its title is.
    found = encoder.encode_documents([Document("1", "The cat sat.")]).rows
    np.testing.assert_allclose(found, plain.snippets(Document("1", "The cat sat.", "old house:")), atol=FP32_ATOL)
    found = encoder.encode_documents([Document("1", "The cat sat.", "it")]).rows
    np.testing.assert_allclose(found, plain.snippets(Document("1", "The cat sat.", "old house: it")), atol=FP32_ATOL)


def test_norms_are_kept_where_the_checkpoint_says_so(folder, plain, tmp_path):
    settings = {"format_version": 1, "normalise": False, "similarity": "dot", "temperature": 0.5}
    encoder = load_encoder(configured(folder, tmp_path, {"mvindex.json": settings}))
    states = plain.states([2, *plain.tokens("the cat")[0], 3])
    np.testing.assert_allclose(encoder.encode_queries(["the cat"])[0], states.mean(axis=0), rtol=1e-5, atol=FP32_ATOL)
    assert (encoder.spec["similarity"], encoder.spec["temperature"]) == ("dot", 0.5)


def test_a_shorter_window_may_be_set(folder, plain, tmp_path):
    settings = {"format_version": 1, "lengths": {"document": 12, "query": 6}}
    encoder = load_encoder(configured(folder, tmp_path, {"mvindex.json": settings}))
    ids = plain.tokens("the cat sat on the mat")[0]
    states = np.concatenate([plain.states([2, *ids[:4], 3]), plain.states([2, *ids[4:], 3])])
    found = encoder.encode_queries(["the cat sat on the mat"])[0]
    np.testing.assert_allclose(found, unit(states.mean(axis=0)), atol=FP32_ATOL)
    # Room for 10: the two sentences, of 7 and 6 tokens, take a window each.
    ids = plain.tokens("the cat sat on the mat . he ran on the rug .")[0]
    states = [plain.states([2, *part, 3])[1:-1] for part in (ids[:7], ids[7:])]
    views = encoder.encode_documents([Document("1", "The cat sat on the mat. He ran on the rug.")])
    np.testing.assert_allclose(views.rows, unit(np.array([part.mean(axis=0) for part in states])), atol=FP32_ATOL)


@pytest.mark.parametrize("family", ["snippets", "single"])
def test_a_document_without_any_token_is_its_special_tokens(folder, plain, family):
    documents = [Document("marks", "\u0301\u0302"), Document("mark and title", "\u0301", "cat")]
    views = load_encoder(folder, family=family).encode_documents(documents)
    np.testing.assert_allclose(views.rows[0], unit(plain.states([2, 3]).mean(axis=0)), atol=FP32_ATOL)
    title = plain.snippets if family == "snippets" else plain.single
    np.testing.assert_allclose(views.rows[1:], title(Document("t", "", "cat")), atol=FP32_ATOL)
    assert views.spans.tolist() == [[0, 2], [-1, -1]]


def test_a_snippet_without_any_token_has_no_view(folder):
    document = Document("1", "The cat sat. It ran. \u0301")
    assert split_sentences(document.text) == [(0, 12), (13, 20), (21, 22)]
    assert load_encoder(folder, splitter="sentences-1").encode_documents([document]).spans.tolist() == [
        [0, 12],
        [13, 20],
    ]
    # A part without a letter joins the one before.
    assert load_encoder(folder).encode_documents([document]).spans.tolist() == [[0, 12], [13, 22]]


def test_the_order_and_company_of_documents_change_nothing_but_the_last_digits(folder):
    encoder = load_encoder(folder)
    together = encoder.encode_documents(DOCUMENTS)
    turned = encoder.encode_documents(DOCUMENTS[::-1])
    for number, document in enumerate(DOCUMENTS):
        alone = encoder.encode_documents([document]).rows
        np.testing.assert_allclose(rows_of(together, number), alone, atol=FP32_ATOL)
        np.testing.assert_allclose(rows_of(turned, len(DOCUMENTS) - 1 - number), alone, atol=FP32_ATOL)


def test_many_small_batches_give_what_one_large_batch_gives(folder, monkeypatch):
    encoder = load_encoder(folder)
    large = encoder.encode_documents(DOCUMENTS)
    monkeypatch.setattr(encoder, "_shape", BatchShape(max_tokens=1))
    small = encoder.encode_documents(DOCUMENTS)
    np.testing.assert_allclose(small.rows, large.rows, atol=FP32_ATOL)


def test_the_same_call_gives_the_same_bits(folder, as_the_machine_computes):
    first, second = load_encoder(folder), load_encoder(folder)
    expected = first.encode_documents(DOCUMENTS).rows
    assert np.array_equal(first.encode_documents(DOCUMENTS).rows, expected)
    assert np.array_equal(second.encode_documents(DOCUMENTS).rows, expected)
    queries = ["the cat", LONG]
    assert np.array_equal(first.encode_queries(queries), second.encode_queries(queries))


def test_documents_in_the_machines_fast_type_stay_close_and_queries_in_fp32(folder, plain, as_the_machine_computes):
    encoder = load_encoder(folder)
    views = encoder.encode_documents(DOCUMENTS)
    expected = np.concatenate([plain.snippets(document) for document in DOCUMENTS])
    # bf16 keeps 8 bits: two layers of random weights stay within a few per cent.
    assert (views.rows * expected).sum(axis=1).min() > 0.99
    np.testing.assert_allclose(np.linalg.norm(views.rows, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(encoder.encode_queries(["the cat"])[0], plain.query("the cat"), atol=FP32_ATOL)


def test_batches_that_do_not_fit_into_the_gpus_memory_are_halved(folder, monkeypatch, caplog):
    encoder = load_encoder(folder)
    expected = encoder.encode_documents(DOCUMENTS)
    states, room = transformer.last_states, 200

    def last_states(model, batch):
        if batch.ids.size > room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return states(model, batch)

    monkeypatch.setattr(transformer, "last_states", last_states)
    monkeypatch.setattr(transformer, "_LEAST_BATCH_TOKENS", 128)
    done = []
    np.testing.assert_allclose(encoder.encode_documents(DOCUMENTS, done.append).rows, expected.rows, atol=FP32_ATOL)
    assert "batches of 256 tokens from now on" in caplog.text
    room = 0
    with pytest.raises(EncoderError, match="too little memory for a batch of 128 tokens.*Tried to allocate"):
        encoder.encode_documents(DOCUMENTS)


@pytest.mark.parametrize("family", ["single", "kmeans"])
def test_a_gpu_that_has_no_room_for_the_model_or_its_views_is_named(folder, family, monkeypatch):
    def refuse(*args, **kwargs):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    if family == "single":
        monkeypatch.setattr(torch.nn.Module, "to", refuse)
    else:
        monkeypatch.setattr(transformer, "token_views", refuse)
    with pytest.raises(EncoderError, match="cpu: too little memory for the (model|views of 3 documents); .*Tried to"):
        load_encoder(folder, family=family).encode_documents(DOCUMENTS[:3])


def test_documents_are_reported_once_where_a_later_batch_does_not_fit(folder, monkeypatch):
    encoder, states, called, done = load_encoder(folder), transformer.last_states, [], []
    monkeypatch.setattr(encoder, "_shape", BatchShape(max_tokens=256, max_length=64))

    def last_states(model, batch):
        called.append(batch)
        if len(called) == 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return states(model, batch)

    monkeypatch.setattr(transformer, "last_states", last_states)
    monkeypatch.setattr(transformer, "_LEAST_BATCH_TOKENS", 64)
    encoder.encode_documents(DOCUMENTS * 6, done.append)
    assert len(called) > 6 and min(done) > 0
    assert sum(done) == 6 * len(DOCUMENTS)


def test_progress_adds_up_to_all_documents(folder, monkeypatch):
    encoder = load_encoder(folder)
    monkeypatch.setattr(encoder, "_shape", BatchShape(max_tokens=50))
    done = []
    encoder.encode_documents(DOCUMENTS, done.append)
    assert sum(done) == len(DOCUMENTS) and len(done) > 3


def test_nothing_to_encode_gives_nothing(folder):
    encoder = load_encoder(folder)
    assert encoder.encode_documents([]).rows.shape == (0, 16)
    assert encoder.encode_queries([]).shape == (0, 16)


def test_a_spec_opens_the_same_encoder_and_notices_a_changed_one(folder, tmp_path):
    encoder = load_encoder(configured(folder, tmp_path, {}), max_views=3)
    spec = json.loads(json.dumps(encoder.spec))
    again = encoder_from_spec(spec, device="cpu")
    assert (again.fingerprint, again.max_views, again.dim) == (encoder.fingerprint, 3, 16)
    (tmp_path / "copy" / "vocab.txt").write_text("more", encoding="utf-8")
    with pytest.raises(CheckpointError, match="has changed since the index was made.*ingest again"):
        encoder_from_spec(spec)
    with pytest.raises(ConfigError, match="kind 'oracle'"):
        encoder_from_spec({"kind": "oracle"})


@pytest.mark.parametrize("device", ["tpu", "cuda:", "CPU", "cuda:99", ""])
def test_another_device_is_refused(folder, device):
    with pytest.raises(ConfigError, match=f"device is '{device}'"):
        load_encoder(folder, device=device)


def test_cuda_asked_for_where_there_is_none_is_an_error(folder, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ConfigError, match="finds 0 CUDA devices"):
        load_encoder(folder, device="cuda")


@pytest.mark.needs("cuda")
def test_cuda_gives_the_vectors_of_the_cpu(folder, plain, as_the_machine_computes):
    encoder = load_encoder(folder, device="cuda")
    first, again = encoder.encode_documents(DOCUMENTS), encoder.encode_documents(DOCUMENTS)
    expected = np.concatenate([plain.snippets(document) for document in DOCUMENTS])
    assert np.array_equal(first.rows, again.rows)
    assert (first.rows * expected).sum(axis=1).min() > 0.99
    np.testing.assert_allclose(encoder.encode_queries(["the cat"])[0], plain.query("the cat"), atol=FP32_ATOL)


@pytest.mark.parametrize(("flags", "has_bf16"), [("fpu avx512f avx512_bf16", True), ("fpu avx512f bf", False)])
def test_bf16_is_used_only_where_the_processor_has_it(monkeypatch, tmp_path, flags, has_bf16):
    (tmp_path / "cpuinfo").write_text(f"processor : 0\nflags\t\t: {flags}\n\n", encoding="utf-8")
    monkeypatch.setattr(devices, "_CPU_INFO", tmp_path / "cpuinfo")
    assert (devices.document_dtype(torch.device("cpu")) == torch.bfloat16) is has_bf16
    monkeypatch.setattr(devices, "_CPU_INFO", tmp_path / "absent")
    assert devices.document_dtype(torch.device("cpu")) == torch.float32


def test_loading_is_quiet_and_leaves_global_settings_alone(folder, capfd):
    settings = transformers.utils.logging
    settings.set_verbosity_info()
    before = (torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled(), settings.get_verbosity(),
              settings.is_progress_bar_enabled())  # fmt: skip
    try:
        load_encoder(folder).encode_documents(DOCUMENTS[:1])
        after = (torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled(), settings.get_verbosity(),
                 settings.is_progress_bar_enabled())  # fmt: skip
    finally:
        settings.set_verbosity_warning()
    assert after == before
    assert capfd.readouterr() == ("", "")


def test_weights_that_do_not_fill_the_model_are_refused(folder, tmp_path):
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    more_layers = configured(folder, tmp_path, {"config.json": config | {"num_hidden_layers": 3}})
    with pytest.raises(CheckpointError, match=r"the weights lack encoder\.layer\.2"):
        load_encoder(more_layers)


@pytest.mark.parametrize("num_layers", [-1, 0, 1])
def test_weights_of_more_layers_than_the_model_has_are_refused(folder, tmp_path, num_layers):
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    fewer = configured(folder, tmp_path, {"config.json": config | {"num_hidden_layers": num_layers}})
    with pytest.raises(CheckpointError, match=r"layers that config.json does not name: encoder\.layer\.[01]"):
        load_encoder(fewer)


DOUBLE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}


@pytest.mark.parametrize(
    ("normalizers", "times"),
    [
        ([DOUBLE] * 32, "4.29497e\\+09"),
        ([{"type": "Sequence", "normalizers": [DOUBLE] * 4}] * 2, "256"),
        ([{"type": "Replace", "pattern": {"Regex": "b*"}, "content": "x" * 99}], "100"),
        ([{"type": "Precompiled", "precompiled_charsmap": b64encode(b"\0\0\0\0a\0" + b"b" * 70).decode()}], "70"),
    ],
)
def test_a_tokenizer_that_makes_texts_many_times_longer_is_refused(folder, tmp_path, normalizers, times):
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer |= {"normalizer": {"type": "Sequence", "normalizers": normalizers}}
    tokenizer["added_tokens"] = [{**token, "normalized": True} for token in tokenizer["added_tokens"]]
    with pytest.raises(CheckpointError, match=f"json: the normalizer may make a text {times} times longer"):
        load_encoder(configured(folder, tmp_path, {"tokenizer.json": tokenizer}))


@pytest.mark.parametrize("changes", [{"hidden_size": 32}, {"model_type": "unheard-of"}])
def test_a_model_that_cannot_be_made_is_refused(folder, tmp_path, changes):
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    with pytest.raises(CheckpointError, match="the model cannot be loaded"):
        load_encoder(configured(folder, tmp_path, {"config.json": config | changes}))


def test_broken_files_are_refused(folder, tmp_path):
    copy = configured(folder, tmp_path, {"tokenizer.json": {"version": "1.0"}, "model.safetensors": {}})
    with pytest.raises(CheckpointError, match="the tokenizer cannot be loaded"):
        load_encoder(copy)
    (copy / "tokenizer.json").unlink()
    (copy / "tokenizer.json").symlink_to(folder / "tokenizer.json")
    with pytest.raises(CheckpointError, match="the model cannot be loaded"):
        load_encoder(copy)


def test_a_vector_that_is_not_finite_is_named(folder, monkeypatch):
    encoder = load_encoder(folder)
    states = transformer.last_states
    monkeypatch.setattr(transformer, "last_states", lambda model, batch: states(model, batch) * float("nan"))
    with pytest.raises(EncoderError, match="document 'short': the model gave a vector of norm nan"):
        encoder.encode_documents(DOCUMENTS)
    with pytest.raises(EncoderError, match="query 1: the model gave a vector of norm nan"):
        encoder.encode_queries(["a"])


def test_a_window_without_room_is_refused(folder, tmp_path):
    short = configured(folder, tmp_path, {"mvindex.json": {"format_version": 1, "lengths": {"query": 2}}})
    with pytest.raises(CheckpointError, match="a window of 2 tokens is too short"):
        load_encoder(short)


def test_a_prompt_that_fills_the_window_is_refused(folder, tmp_path):
    prompts = {"format_version": 1, "prompts": {"document": "the cat " * 15}}
    with pytest.raises(CheckpointError, match="a prompt of 30; at most half"):
        load_encoder(configured(folder, tmp_path, {"mvindex.json": prompts}))


@pytest.mark.parametrize("module", ["torch", "transformers", "safetensors"])
def test_a_missing_package_is_named_with_its_install_command(folder, tmp_path, monkeypatch, module):
    # Without the forms of encoders that other tests left.
    monkeypatch.setenv("MVINDEX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, module, None)
    message = f"'{folder}' needs the package '{module}': {install_command('train')}"
    with pytest.raises(ExtraMissing, match=re.escape(message)):
        load_encoder(folder)
    with pytest.raises(ExtraMissing, match=re.escape(install_command("train"))):
        load_encoder("minilm")


def test_an_unknown_family_is_refused_with_the_known_ones(folder):
    with pytest.raises(ConfigError, match="family: expected one of 'snippets', 'single', 'first-k'.* got 'colbert'"):
        load_encoder(folder, family="colbert")

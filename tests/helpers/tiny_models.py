"""Tiny random models with tokenizers of their own, and a slow reference that runs one written-out input at a time.

A test file that imports this is skipped where torch or what goes with it is missing.
"""

import json
from contextlib import contextmanager
from functools import cache

import numpy as np
import pytest

torch = pytest.importorskip("torch")
tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

WORDS = "the a cat dog sat ran on under mat rug it was he she red blue old new house river".split()
LETTERS = "abcdefghijklmnopqrstuvwxyz"
LENGTH = 40
SHAPE = dict(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, initializer_range=0.2
)  # fmt: skip
ATOL = 1e-6
# The kinds of model that differ in positions, pooling or attention.
KINDS = ["bert", "roberta", "minilm", "modernbert-sdpa", "modernbert-eager"]


def make_kind(folder, kind):
    """The folder with a model of one of KINDS."""
    name, _, attention = kind.partition("-")
    return make_model(folder, name, attention or "sdpa")


def make_model(folder, kind="bert", attention="sdpa", seed=0):
    """The folder with a model of that kind and a tokenizer: [CLS] or <s> before a text, [SEP] or </s> after it."""
    folder.mkdir(parents=True, exist_ok=True)
    names = _write_byte_pairs(folder) if kind == "roberta" else _write_word_pieces(folder, SPECIALS)
    vocabulary = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **names}), encoding="utf-8"
    )
    torch.manual_seed(seed)
    config = _config(kind, len(vocabulary), attention)
    model_class = {"roberta": transformers.RobertaModel, "modernbert": transformers.ModernBertModel}
    kwargs = {} if kind == "modernbert" else {"add_pooling_layer": False}
    model = model_class.get(kind, transformers.BertModel)(config, **kwargs)
    with torch.no_grad():  # biases are 0 and norms 1 at the start, where a fault in either would not show
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    transformers.utils.logging.disable_progress_bar()
    model.save_pretrained(folder)
    transformers.utils.logging.enable_progress_bar()
    return folder


def _config(kind, size, attention):
    if kind == "roberta":
        limit = 2 * LENGTH + 2  # its tokens are short; positions start at 2, after the padding id
        return transformers.RobertaConfig(
            **SHAPE, vocab_size=size, max_position_embeddings=limit, pad_token_id=1, bos_token_id=0, eos_token_id=2,
            type_vocab_size=1,
        )  # fmt: skip
    if kind == "modernbert":
        return transformers.ModernBertConfig(
            **SHAPE, vocab_size=size, max_position_embeddings=LENGTH, pad_token_id=0, bos_token_id=2, cls_token_id=2,
            eos_token_id=3, sep_token_id=3, local_attention=8, global_attn_every_n_layers=2,
            attn_implementation=attention,
        )  # fmt: skip
    if kind == "minilm":  # more heads and layers for its width, as MiniLM has
        shape = SHAPE | {"num_hidden_layers": 3, "num_attention_heads": 4}
        return transformers.BertConfig(**shape, vocab_size=size, max_position_embeddings=64)
    return transformers.BertConfig(**SHAPE, vocab_size=size, max_position_embeddings=LENGTH)


SPECIALS = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}


def _write_word_pieces(folder, names):
    pieces = [*names.values(), *WORDS, *".?!:,", *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    ends = [(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=ends)
    tokenizer.save(str(folder / "tokenizer.json"))
    return names


def _write_byte_pairs(folder):
    """Single bytes and a few merges, with <s> 0, <pad> 1, </s> 2, <unk> 3 as RoBERTa has them."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("th", "e"), ("a", "t"), ("\u0120", "the"), ("c", "at"), ("s", "at")]
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *alphabet, *("".join(pair) for pair in merges)]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    ends = [("<s>", 0), ("</s>", 2)]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing("<s> $A </s>", special_tokens=ends)
    tokenizer.save(str(folder / "tokenizer.json"))
    return {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "pad_token": "<pad>",
            "unk_token": "<unk>"}  # fmt: skip


def add_viewers(folder, num_views, family, **settings):
    """The folder as a checkpoint of a viewer family: tokens by the tokenizers library, embeddings drawn here."""
    path = folder / "tokenizer.json"
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    names = ["[VIE]", *(f"[VIE_{number + 1}]" for number in range(num_views))]
    tokenizer.add_special_tokens(names)
    tokenizer.save(str(path))
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModel.from_pretrained(folder)
    torch.manual_seed(1)
    model.resize_token_embeddings(tokenizer.get_vocab_size(), mean_resizing=False)
    with torch.no_grad():
        model.get_input_embeddings().weight[-len(names) :] = torch.randn(len(names), 32) * 0.3
    model.save_pretrained(folder)
    transformers.utils.logging.enable_progress_bar()
    write_settings(folder, family=family, max_views=num_views, **settings)
    return folder


def write_settings(folder, **content):
    (folder / "mvindex.json").write_text(json.dumps({"format_version": 1, **content}), encoding="utf-8")


def copied(folder, tmp_path, **content):
    """A copy by links with settings of its own."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in folder.iterdir():
        if path.name != "mvindex.json":
            (copy / path.name).symlink_to(path)
    write_settings(copy, **content)
    return copy


def close(found, expected, atol=ATOL):
    np.testing.assert_allclose(found, expected, atol=atol, rtol=0)


@cache
def reference_of(folder):
    """The Reference of a folder that no test changes."""
    return Reference(folder)


class Reference:
    """The states of inputs that a test writes out, in float64; and the tokens that they are written with."""

    def __init__(self, folder, side=""):
        transformers.utils.logging.disable_progress_bar()
        self.model = transformers.AutoModel.from_pretrained(folder / side).double().eval()
        transformers.utils.logging.enable_progress_bar()
        self.tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.first = 2 if self.model.config.model_type == "roberta" else 0
        empty = self.tokenizer.encode("").ids
        self.cls, self.sep = empty[0], empty[1]

    def tokens(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def token(self, name):
        return self.tokenizer.token_to_id(name)

    def states(self, ids, positions=None):
        """The last states (t, d) of one input, its positions 0, 1, 2, ... unless they are given."""
        positions = list(range(len(ids))) if positions is None else positions
        assert len(positions) == len(ids)
        inputs = {"position_ids": torch.tensor([[place + self.first for place in positions]])}
        with torch.no_grad():
            out = self.model(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), **inputs)
        return out.last_hidden_state[0].numpy()


def mean(states):
    return sum(states) / len(states)


def unit(rows):
    rows = np.array(rows)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def lloyd(tokens, num_views, max_rounds=50):
    """The centroids of k-means over the tokens in plain Python, and the smallest margin of any assignment.

    Start at equal intervals, lowest index of equals, an empty cluster keeps its last members (DRPQ section 3.1).
    """
    tokens = [np.asarray(token, dtype=np.float64) for token in tokens]
    size = min(num_views, len(tokens))
    members = [[j * len(tokens) // size] for j in range(size)]
    margin = np.inf
    for _ in range(max_rounds):
        centroids = [mean([tokens[i] for i in cluster]) for cluster in members]
        assigned = [[] for _ in range(size)]
        for i, token in enumerate(tokens):
            distances = [float(((token - centroid) ** 2).sum()) for centroid in centroids]
            best = min(range(size), key=lambda j: (distances[j], j))
            margin = min([margin, *(d - distances[best] for j, d in enumerate(distances) if j != best)])
            assigned[best].append(i)
        updated = [new or old for new, old in zip(assigned, members, strict=True)]
        if updated == members:
            break
        members = updated
    return np.array([mean([tokens[i] for i in cluster]) for cluster in members]), members, margin


@contextmanager
def plain_arithmetic(monkeypatch):
    """Documents in fp32, and one thread: tiny products on several threads of a busy machine wait for each other."""
    from mvindex.encoder import transformer

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(transformer, "document_dtype", lambda device: torch.float32)
    yield
    torch.set_num_threads(threads)

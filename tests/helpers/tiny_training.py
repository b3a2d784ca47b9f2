"""A small encoder that keeps TrainableEncoder's interface, and data that it can learn: for tests of the loop alone.

Words are hashed into an embedding table; a view is a linear layer over the mean of a sentence's words, after dropout.
"""

import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from mvindex.records import Document, Views
from mvindex_train.batches import TrainBatch

BUCKETS, DIM, NUM_WORDS = 512, 16, 60


@dataclass
class Rows:
    rows: torch.Tensor
    starts: torch.Tensor
    spans: np.ndarray


class TinyEncoder(torch.nn.Module):
    def __init__(self, seed=0, dropout=0.1):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.words = torch.nn.Parameter(torch.randn(BUCKETS, DIM, generator=generator))
        self.mix = torch.nn.Parameter(torch.randn(DIM, DIM, generator=generator) / DIM**0.5)
        self.unused = torch.nn.Parameter(torch.ones(3))
        self.frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)
        self.dropout = dropout

    def encode(self, texts, documents):
        return self.encode_queries(texts), self.encode_documents(documents)

    def encode_queries(self, texts):
        return torch.stack([self._vector(text) for text in texts])

    def encode_documents(self, documents):
        spans = [sentence_spans(document.text) for document in documents]
        rows = [
            self._vector(document.text[begin:end])
            for document, own in zip(documents, spans, strict=True)
            for begin, end in own
        ]
        starts = torch.tensor(np.cumsum([0, *map(len, spans)]))
        return Rows(torch.stack(rows), starts, np.array([span for own in spans for span in own]).reshape(-1, 2))

    def parameter_groups(self, config):
        return [{"params": [self.words, self.unused]}, {"params": [self.mix], "lr": 2 * config.learning_rate}]

    def frozen_encoder(self):
        return Frozen(self)

    def _vector(self, text):
        ids = torch.tensor([zlib.crc32(word.encode()) % BUCKETS for word in text.lower().split()])
        states = torch.nn.functional.dropout(self.words[ids], self.dropout, self.training)
        return torch.nn.functional.normalize(states.mean(0) @ self.mix, dim=0)


class Frozen:
    """The Encoder protocol over the same weights."""

    def __init__(self, encoder):
        self.encoder = encoder
        self.dim, self.max_views, self.fingerprint, self.spec = DIM, None, "tiny", {}

    @torch.no_grad()
    def encode_documents(self, documents, on_progress=None):
        self.encoder.eval()
        found = self.encoder.encode_documents(documents)
        return Views(found.rows.float().numpy(), found.starts.numpy(), found.spans)

    @torch.no_grad()
    def encode_queries(self, texts):
        self.encoder.eval()
        return self.encoder.encode_queries(texts).numpy()


def sentence_spans(text):
    """One span a sentence, up to its full stop: at least one."""
    spans, begin = [], 0
    for end in [place + 1 for place, char in enumerate(text) if char == "."] or [len(text)]:
        spans.append((begin, end))
        begin = end
    return spans


def make_documents(count=24):
    """Documents of one to three sentences, each with words of its own beside shared ones."""
    texts = []
    for number in range(count):
        parts = [f"the colour of house{number}x{part} is paint{number}x{part}." for part in range(1 + number % 3)]
        texts.append(" ".join(parts))
    return [Document(f"d{number}", text) for number, text in enumerate(texts)]


def question_of(number, part=0):
    return f"which paint{number}x{part} do they have at the house"


class TinyBatches:
    """Batches of six questions over eight documents, in an order of the epoch's own."""

    def __init__(self, count=24, size=6):
        self.documents, self.size = make_documents(count), size

    def num_steps(self, epoch):
        return len(self.documents) // self.size

    def batches(self, epoch, first):
        order = np.random.default_rng([7, epoch]).permutation(len(self.documents))
        for number in range(first, self.num_steps(epoch)):
            own = order[number * self.size : (number + 1) * self.size]
            others = [row for row in order if row not in own][:2]
            yield self.batch([int(row) for row in own], [int(row) for row in others])

    def batch(self, own, others=()):
        questions = [question_of(row) for row in own]
        spans = [sentence_spans(self.documents[row].text)[0] for row in own]
        excluded = np.zeros((len(own), len(own) + len(others)), dtype=bool)
        excluded[0, -1] = True
        return TrainBatch(
            questions=questions,
            documents=[self.documents[row] for row in [*own, *others]],
            positives=np.arange(len(own)),
            excluded=excluded,
            answer_spans=[spans[0], *[None] * (len(own) - 1)],
            teacher=None,
        )


def make_base(folder):
    """A BERT of two narrow layers with random weights, whose vocabulary is w0 to w59 and a full stop."""
    import tokenizers
    import transformers

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *(f"w{number}" for number in range(NUM_WORDS))]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=64, initializer_range=0.3,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    ends = [(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    return folder


PATH = [str(Path(__file__).parents[2]), *sys.path]

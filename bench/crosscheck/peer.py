"""lightning-ir's MVR on the paper's inputs: its own model, scoring, losses and training step, nothing of it changed.

What the paper asks for and lightning-ir has no setting for is put into its inputs, here and nowhere else:
- tokens: [VIE] q [SEP], and [VIE_1..k] d [SEP] with the viewers at position id 0 and the text from 1 (MVR eq. 3), given
  as ids and position ids. Its MvrModel takes the states 1 to k of a document, so that one token that nothing may read
  (attention mask 0) stands before the viewers;
- tau: scores are divided by it before a loss, since neither loss divides by anything;
- the local loss gets the view scores of the positives, (q, k), since it fails on (pairs, 1, k), the shape it is given.
"""

import warnings
from contextlib import contextmanager
from dataclasses import dataclass

import tokenizers
import torch
import transformers
from lightning_ir import BiEncoderModule, BiEncoderOutput, ContrastiveLocalLoss, InBatchCrossEntropy, TrainBatch
from lightning_ir.base import LightningIROutput
from lightning_ir.bi_encoder.bi_encoder_model import BiEncoderEmbedding
from lightning_ir.models import MvrConfig, MvrModel
from transformers import BatchEncoding


@dataclass(frozen=True)
class Form:
    """The form of a document: viewers at position id 0, as in the paper, and the first token unread."""

    viewers_at_zero: bool = True
    first_is_unread: bool = True


class PaperTokens:
    """Texts to the ids and position ids of MVR section 3.2, straight from the tokenizer's file."""

    def __init__(self, folder, num_views, form=Form()):  # noqa: B008 - a frozen record
        self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._viewers = [self._id(f"[VIE_{slot}]") for slot in range(1, num_views + 1)]
        self._form = form

    def questions(self, texts):
        rows = [[self._id("[VIE]"), *self._words(text), self._id("[SEP]")] for text in texts]
        return self._padded(rows, [list(range(len(row))) for row in rows], unread=0)

    def documents(self, texts):
        rows = [[self._id("[CLS]"), *self._viewers, *self._words(text), self._id("[SEP]")] for text in texts]
        head = 1 + len(self._viewers)
        places = [[0] * head + list(range(1, len(row) - head + 1)) for row in rows]
        if not self._form.viewers_at_zero:
            places = [[0, *range(len(row) - 1)] for row in rows]
        return self._padded(rows, places, unread=int(self._form.first_is_unread))

    def _padded(self, rows, places, unread):
        longest = max(map(len, rows))
        ids, positions, mask = (torch.zeros(len(rows), longest, dtype=torch.long) for _ in range(3))
        ids.fill_(self._id("[PAD]"))
        for number, (row, own) in enumerate(zip(rows, places, strict=True)):
            ids[number, : len(row)] = torch.tensor(row)
            positions[number, : len(row)] = torch.tensor(own)
            mask[number, unread : len(row)] = 1
        return BatchEncoding({"input_ids": ids, "position_ids": positions, "attention_mask": mask})

    def _words(self, text):
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def _id(self, name):
        return self._tokenizer.token_to_id(name)


class TemperedInBatch(InBatchCrossEntropy):
    """The package's in-batch loss over scores divided by tau."""

    def __init__(self, tau):
        super().__init__()
        self.tau = tau

    def compute_loss(self, output):
        return super().compute_loss(LightningIROutput(output.scores / self.tau))


class PositivesLocal(ContrastiveLocalLoss):
    """The package's local loss over the view scores of the positives, each question's first document, by tau."""

    def __init__(self, tau, num_documents):
        super().__init__(temperature=tau)
        self.num_documents = num_documents

    def compute_loss(self, output):
        positives = output.similarity[:: self.num_documents, 0] / self.temperature
        return super().compute_loss(BiEncoderOutput(similarity=positives))


class PaperModule(BiEncoderModule):
    """The package's module, whose texts become tokens as in the paper; logged: the last step's losses, by class."""

    def __init__(self, model, tokens, losses):
        super().__init__(model=model, loss_functions=losses)
        self.tokens, self.logged = tokens, {}

    def log(self, name, value, **options):
        self.logged[name] = value

    def prepare_input(self, queries, docs, num_docs):
        return {"query_encoding": self.tokens.questions(queries), "doc_encoding": self.tokens.documents(docs)}


class VectorModule(PaperModule):
    """The package's module over vectors that are given: only its encoder is left out."""

    def forward(self, batch):
        questions, views = self.tokens
        masks = [torch.ones(vectors.shape[:2], dtype=torch.bool) for vectors in (questions[:, None], views)]
        made = BiEncoderOutput(
            query_embeddings=BiEncoderEmbedding(questions[:, None], masks[0]),
            doc_embeddings=BiEncoderEmbedding(views, masks[1]),
        )
        return self.model.score(made, [len(documents) for documents in batch.docs])


def load_peer(folder, num_views):
    """Load the package's MVR model over the folder's weights: no projection, raw inner products."""
    with quiet():
        config = MvrConfig(num_viewer_tokens=num_views, projection=None, query_length=None, doc_length=None)
        return MvrModel.from_pretrained(folder, config=config).eval()


def train_step(model, tokens, texts, tau, local_weight):
    """Return losses by name and gradients of the weights by name, of the package's own training step."""
    num_documents = len(texts.documents) // len(texts.questions)
    module = _module(PaperModule, model, tokens, _losses(tau, num_documents, local_weight))
    model.zero_grad()
    losses = _step(module, as_batch(texts))
    return losses, {name: value.grad for name, value in model.named_parameters() if value.grad is not None}


def vector_step(model, questions, views, tau, local_weight):
    """Return losses by name of the package's training step over vectors (q, d) and (n, k, d), whose grad it adds to."""
    num_documents = len(views) // len(questions)
    module = _module(VectorModule, model, (questions, views), _losses(tau, num_documents, local_weight))
    nothing = [[""] * num_documents] * len(questions)
    return _step(module, TrainBatch([""] * len(questions), nothing, targets=torch.zeros(len(questions), num_documents)))


def _losses(tau, num_documents, local_weight):
    return [(TemperedInBatch(tau), 1.0), (PositivesLocal(tau, num_documents), local_weight)]


def _module(module_class, model, given, losses):
    with quiet():
        return module_class(model, given, losses)


def _step(module, batch):
    module.training_step(batch, 0)["loss"].backward()
    logged = module.logged
    found = {"global": logged["TemperedInBatch"], "local": logged["PositivesLocal"], "total": logged["loss"]}
    return {name: loss.detach() for name, loss in found.items()}


def score_all(model, tokens, texts):
    """Return question vectors (q, d), views (n, k, d), view scores (q, n, k) and document scores (q, n)."""
    count = len(texts.questions)
    with torch.no_grad():
        questions = model.encode_query(tokens.questions(texts.questions))
        documents = model.encode_doc(tokens.documents([document.text for document in texts.documents]))
        tiled = BiEncoderEmbedding(documents.embeddings.repeat(count, 1, 1), documents.scoring_mask.repeat(count, 1))
        output = model.score(BiEncoderOutput(query_embeddings=questions, doc_embeddings=tiled))
    shape = (count, len(texts.documents))
    views = documents.embeddings
    return questions.embeddings[:, 0], views, output.similarity.view(*shape, -1), output.scores.view(shape)


def as_batch(texts):
    each = len(texts.documents) // len(texts.questions)
    documents = [document.text for document in texts.documents]
    nested = [documents[first : first + each] for first in range(0, len(documents), each)]
    targets = torch.zeros(len(texts.questions), each)
    targets[:, 0] = 1
    return TrainBatch(texts.questions, nested, targets=targets)


@contextmanager
def quiet():
    """Silence the notes of lightning and transformers about saving and about tokenizers."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield

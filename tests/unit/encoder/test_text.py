import itertools

import numpy as np
import pytest

tokenizers = pytest.importorskip("tokenizers")

from mvindex.corpus.text.sentences import split_sentences  # noqa: E402 - as above
from mvindex.encoder import text as encoder_text  # noqa: E402 - only where tokenizers is
from mvindex.encoder.text import TextTokenizer  # noqa: E402 - as above
from mvindex.errors import CheckpointError  # noqa: E402 - as above
from mvindex.records import Document  # noqa: E402 - as above

TEXT = '  The river ran on.  It was "blue" (or so he said.) Why?\n\nNobody knew!\tNot Dr. Smith. He ran, ran; the end '
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def wordpiece():
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    return tokenizer, tokenizers.trainers.WordPieceTrainer(vocab_size=120, special_tokens=SPECIAL)


def byte_level():
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer, tokenizers.trainers.BpeTrainer(vocab_size=300, special_tokens=SPECIAL)


def metaspace():
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram())
    # As SentencePiece does: every run of whitespace is one space.
    tokenizer.normalizer = tokenizers.normalizers.Replace(tokenizers.Regex(r"\s+"), " ")
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    trainer = tokenizers.trainers.UnigramTrainer(vocab_size=100, special_tokens=SPECIAL, unk_token="[UNK]")
    return tokenizer, trainer


@pytest.fixture(params=[wordpiece, byte_level, metaspace], ids=lambda kind: kind.__name__)
def tokenizer(request):
    """A small tokenizer of each kind, trained on the text itself."""
    tokenizer, trainer = request.param()
    trainer.show_progress = False
    tokenizer.train_from_iterator([TEXT, "A title"] * 3, trainer)
    ends = [("[CLS]", tokenizer.token_to_id("[CLS]")), ("[SEP]", tokenizer.token_to_id("[SEP]"))]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=ends)
    return tokenizer


def whole_ids(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False).ids


def test_special_tokens_stand_around_every_input(tokenizer):
    made = TextTokenizer(tokenizer, "")
    assert (made.head.tolist(), made.tail.tolist(), made.prompt_tokens) == ([2], [3], 0)


def test_sentences_on_end_are_the_tokens_of_the_whole_text(tokenizer):
    [found] = TextTokenizer(tokenizer, "").tokenize_documents([Document("1", TEXT)])
    assert found.ids.tolist() == whole_ids(tokenizer, TEXT.rstrip())
    assert len(found.parts) == 6 and found.whole == (0, len(TEXT))


def test_prompt_title_and_text_on_end_are_the_tokens_of_the_whole(tokenizer):
    [found] = TextTokenizer(tokenizer, "read: ").tokenize_documents([Document("1", TEXT, "A title")])
    assert [*found.prefix, *found.ids] == whole_ids(tokenizer, "read: A title\n" + TEXT.rstrip())
    [found] = TextTokenizer(tokenizer, "read: ").tokenize_documents([Document("1", TEXT.strip())])
    assert [*found.prefix, *found.ids] == whole_ids(tokenizer, "read: " + TEXT.strip())
    [found] = TextTokenizer(tokenizer, "ask: ").tokenize_queries(["the river?"])
    assert [*found.prefix, *found.ids] == whole_ids(tokenizer, "ask: the river?")


def test_each_sentence_owns_its_tokens(tokenizer):
    [found] = TextTokenizer(tokenizer, "").tokenize_documents([Document("1", TEXT)])
    assert found.parts == split_sentences(TEXT)
    for (begin, end), (first, last) in zip(found.parts, itertools.pairwise(found.starts), strict=True):
        shown = tokenizer.decode(found.ids[first:last].tolist()).lower()
        assert "".join(char for char in shown if char.isalnum()) == "".join(
            char for char in TEXT[begin:end].lower() if char.isalnum()
        )


def test_documents_keep_their_order_and_empty_ones_their_place(tokenizer, monkeypatch):
    monkeypatch.setattr(encoder_text, "_TEXTS_AT_ONCE", 2)
    documents = [Document("1", "He ran. It ran."), Document("2", "", "A title"), Document("3", "Why? Nobody.", "The")]
    found = TextTokenizer(tokenizer, "").tokenize_documents(documents)
    expected = [whole_ids(tokenizer, text) for text in ("He ran. It ran.", "A title", "\nWhy? Nobody.")]
    assert [text.ids.tolist() for text in found] == expected
    assert [len(text.parts) for text in found] == [2, 1, 2]
    assert [text.prefix.tolist() for text in found] == [[], [], whole_ids(tokenizer, "The")]
    assert found[1].parts == [(-1, -1)] and found[1].whole == (-1, -1)
    assert found[0].ids.dtype == np.int32
    assert TextTokenizer(tokenizer, "").tokenize_documents([]) == []


def test_a_tokenizer_without_letters_is_refused():
    empty, _ = wordpiece()
    empty.normalizer = tokenizers.normalizers.Replace(tokenizers.Regex("."), "")
    with pytest.raises(CheckpointError, match="no token for the letter 'a'"):
        TextTokenizer(empty, "")

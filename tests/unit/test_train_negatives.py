"""Mined negatives against plain slow code: BM25 by its formula, filters by hand, a cross-encoder of random weights."""

import json
import math
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("bm25s")
pytest.importorskip("Stemmer")

import mvindex  # noqa: E402 - only where the extra is
from mvindex.errors import CheckpointError, ConfigError, CorpusError  # noqa: E402 - as above
from mvindex.records import Document  # noqa: E402 - as above
from mvindex_train.data.records import Example, dump_example, load_example  # noqa: E402 - as above
from mvindex_train.negatives.bm25 import Bm25Source, best_rows, build_bm25  # noqa: E402 - as above
from mvindex_train.negatives.candidates import Candidate, candidate_of, interleave, unite  # noqa: E402 - as above
from mvindex_train.negatives.config import MiningConfig, MiningJob, SourceKind  # noqa: E402 - as above
from mvindex_train.negatives.cross_encoder import CrossEncoder  # noqa: E402 - as above
from mvindex_train.negatives.dense import DenseSource, mine_dense  # noqa: E402 - as above
from mvindex_train.negatives.documents import StoredDocuments, write_documents  # noqa: E402 - as above
from mvindex_train.negatives.filters import CandidateFilter, is_positive  # noqa: E402 - as above
from mvindex_train.negatives.merging import EarlierFile  # noqa: E402 - as above
from mvindex_train.negatives.mining import Miner  # noqa: E402 - as above
from mvindex_train.negatives.output import ResumableOutput  # noqa: E402 - as above

FP32_RTOL = 1e-5
DOCUMENTS = [
    Document("1", "The crisis began when oil was embargoed; oil prices rose.", "1973 oil crisis"),
    Document("2", "The river flows past the old house."),
    Document("3", "Embargoes on oil exports ended in March."),
    Document("4", "An old crisis of the old house.", "house"),
    Document("5", "!!", "?"),
    Document("6", "The river flows past the old house."),
]


@pytest.fixture(scope="module")
def bm25(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bm25") / "index"
    build_bm25(iter(DOCUMENTS), folder)
    source = Bm25Source(folder)
    yield source
    source.close()


class Listed:
    """A source of the same documents for every question, in a given order."""

    def __init__(self, documents, name="listed"):
        self._documents, self._name = documents, name

    def search(self, questions, depth):
        ranked = [
            Candidate(document, 1 / rank, rank, self._name) for rank, document in enumerate(self._documents[:depth], 1)
        ]
        return [ranked for _ in questions]


class LengthJudge:
    """Scores a document by the length of its text."""

    def score(self, pairs):
        return [float(len(document.text)) for _, document in pairs]


POSITIVE = Document("p", "the positive")


def example(question="what?", positives=(POSITIVE,), answers=(), question_id="q"):
    return Example(question_id, question, tuple(positives), answers=tuple(answers))


def mine(examples, sources, *, judge=None, earlier=None, **config):
    miner = Miner(sources, MiningConfig(**config), judge, earlier)
    return list(miner.mine(examples)), miner.counts


def ids(documents):
    return [document.id for document in documents]


def slow_bm25(question, documents):
    """Lucene's BM25 (Kamphuis et al., 2020) over stems, stop words left out: one score a document."""
    import Stemmer
    from bm25s.stopwords import STOPWORDS_EN

    stem = Stemmer.Stemmer("english").stemWord

    def tokens(text):
        words = re.findall(r"\b\w\w+\b", text.lower())
        return [stem(word) for word in words if word not in STOPWORDS_EN]

    bags = [tokens(f"{document.title}\n{document.text}") for document in documents]
    # bm25s gives a document without any word the empty token, which counts as its length.
    lengths = [max(len(bag), 1) for bag in bags]
    scores = []
    for bag, length in zip(bags, lengths, strict=True):
        score = 0.0
        for term in tokens(question):
            frequency = sum(term in other for other in bags)
            if frequency:
                idf = math.log(1 + (len(bags) - frequency + 0.5) / (frequency + 0.5))
                count = bag.count(term)
                score += idf * count / (count + 0.9 * (1 - 0.4 + 0.4 * length / (sum(lengths) / len(bags))))
        scores.append(score)
    return scores


@pytest.mark.parametrize(
    "question", ["When did the oil crisis begin?", "an old old house by a river", "embargo exported"]
)
def test_bm25_scores_as_the_formula_says(bm25, question):
    wanted = slow_bm25(question, DOCUMENTS)
    order = sorted(
        (row for row in range(len(wanted)) if wanted[row] > 0), key=lambda row: (-round(wanted[row], 6), row)
    )
    (found,) = bm25.search([question], 10)
    assert ids(candidate.document for candidate in found) == [DOCUMENTS[row].id for row in order]
    np.testing.assert_allclose([c.score for c in found], [wanted[row] for row in order], rtol=FP32_RTOL)
    assert [(c.rank, c.source) for c in found] == [(rank, "bm25") for rank in range(1, len(order) + 1)]


def test_a_question_without_a_known_word_has_no_candidate(bm25):
    assert bm25.search(["the of and", "zebra?", "", "river"], 1)[:3] == [[], [], []]


def test_equal_bm25_scores_stand_in_the_order_of_the_documents(bm25):
    (found,) = bm25.search(["river"], 10)
    assert ids(candidate.document for candidate in found) == ["2", "6"]
    assert found[0].score == found[1].score
    assert [c.document.id for c in bm25.search(["river"], 1)[0]] == ["2"]


def test_batches_do_not_change_bm25_candidates(bm25):
    questions = ["old oil", "river house", "crisis", "zebra", "march"] * 5
    assert bm25.search(questions, 3) == [bm25.search([question], 3)[0] for question in questions]


def test_bm25_refuses_no_documents_and_a_folder_that_is_there(tmp_path):
    with pytest.raises(ConfigError, match="no document to mine"):
        build_bm25(iter([]), tmp_path / "index")
    assert not (tmp_path / "index").exists()
    build_bm25(iter(DOCUMENTS), tmp_path / "index")
    with pytest.raises(ConfigError, match="exists"):
        build_bm25(iter(DOCUMENTS), tmp_path / "index")


@given(st.lists(st.integers(0, 4), max_size=30), st.integers(1, 12))
def test_best_rows_are_those_of_a_full_sort(scores, depth):
    array = np.array(scores, dtype=np.float32)
    wanted = sorted((row for row, score in enumerate(scores) if score > 0), key=lambda row: (-scores[row], row))
    assert best_rows(array, depth).tolist() == wanted[:depth]


@settings(max_examples=30)
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), max_size=5))
def test_stored_documents_come_back(tmp_path_factory, texts):
    folder = tmp_path_factory.mktemp("documents")
    documents = [Document(f"d {row}", text, text[:3]) for row, text in enumerate(texts)]
    assert list(write_documents(documents, folder)) == documents
    stored = StoredDocuments(folder)
    assert [stored[row] for row in range(len(stored))] == documents
    stored.close()


def test_sources_take_turns_and_a_document_of_both_names_both():
    first = [Candidate(Document(doc_id, "x"), 1.0, rank, "bm25") for rank, doc_id in enumerate("abc", 1)]
    second = [Candidate(Document(doc_id, "x"), 9.0, rank, "dense") for rank, doc_id in enumerate("bd", 1)]
    found = [(c.document.id, c.rank, c.score, c.source) for c in interleave([first, second])]
    assert found == [("a", 1, 1.0, "bm25"), ("b", 1, 9.0, "dense+bm25"), ("d", 2, 9.0, "dense"), ("c", 3, 1.0, "bm25")]


def test_uniting_keeps_one_of_each_document_and_is_done_once():
    given_one = Candidate(Document("a", "x"))
    once = unite(
        [given_one, Candidate(Document("a", "x"), 2.0, 1, "bm25"), Candidate(Document("b", "x"), 1.0, 2, "bm25")]
    )
    assert [(c.document.id, c.source) for c in once] == [("a", "bm25"), ("b", "bm25")]
    assert unite([*once, *once]) == once


def test_a_candidate_comes_back_from_its_row():
    candidate = Candidate(Document("a", "x", "t"), 0.1234564, 3, "bm25")
    mined = Example("q", "what?", (Document("p", "y"),), (candidate.to_document(),))
    (document,) = load_example(dump_example(mined).decode(), "here").negatives
    back = candidate_of(document)
    assert (back.document.id, back.score, back.rank, back.source) == ("a", 0.123456, 3, "bm25")


@pytest.mark.parametrize(
    ("document", "positive", "wanted"),
    [
        (Document("p", "other"), Document("p", "text"), True),
        (Document("x", "the text ", "title"), Document("p", "the  text", "title"), True),
        (Document("x", "the text", ""), Document("p", "the text", "title"), True),
        (Document("x", "the text", "another"), Document("p", "the text", "title"), False),
        (Document("x", "the text goes on", "title"), Document("p", "the text", "title"), False),
        (Document("x", "The text", "title"), Document("p", "the text", "title"), False),
        (Document("x", "", "one"), Document("p", "", "two"), False),
    ],
)
def test_a_positive_is_known_by_id_or_by_text_and_title(document, positive, wanted):
    assert is_positive(document, [Document("q", "nothing of it"), positive]) is wanted


def test_candidates_with_an_answer_are_left_out_by_words_not_by_letters():
    texts = ["began in October 1973.", "in OCTOBER  1973!", "in October of 1973", "in 19734", "October 1973x"]
    documents = [Document(str(row), text, "October 1973") for row, text in enumerate(texts)]
    counts = Counter()
    candidates = [Candidate(document, 1.0, 1, "bm25") for document in documents]
    kept = CandidateFilter().sift(example(answers=["October 1973"]), candidates, counts)
    assert ids(candidate.document for candidate in kept) == ["2", "3", "4"]
    assert counts == {"removed_answer": 2}


def test_patterns_are_answers_only_where_they_are_asked_for():
    candidates = [Candidate(Document("a", "in 1973"), 1.0, 1, "bm25"), Candidate(Document("b", r"\d+"), 1.0, 2, "bm25")]
    asked = example(answers=[r"\d+"])
    plain = CandidateFilter(patterns=False).sift(asked, candidates, Counter())
    patterns = CandidateFilter(patterns=True).sift(asked, candidates, Counter())
    assert ids(c.document for c in plain) == ["a"]
    assert ids(c.document for c in patterns) == ["b"]


def test_mining_removes_and_counts_by_reason():
    documents = [
        Document("p", "the positive"), Document("copy", "the positive"), Document("a", "holds the answer here"),
        Document("b", "one"), Document("c", "two"), Document("d", "three"),
    ]  # fmt: skip
    asked = [example(answers=["answer"]), example(question_id="r")]
    rows, counts = mine(asked, [Listed(documents)], per_question=3, depth=6)
    assert [ids(row.negatives) for row in rows] == [["b", "c", "d"], ["a", "b", "c"]]
    assert [document.metadata["rank"] for document in rows[0].negatives] == [4, 5, 6]
    assert counts == {
        "questions": 2, "removed_positive": 4, "removed_answer": 1, "too_few": 0, "without_answers": 1, "negatives": 6,
    }  # fmt: skip


def test_mined_negatives_take_the_place_of_given_ones_and_too_few_is_counted():
    given_one = Example("q", "what?", (Document("p", "x"),), (Document("old", "y"),), teacher=(1.0, 0.5))
    (row,), counts = mine([given_one], [Listed([Document("n", "z")])], per_question=2, depth=2)
    assert (ids(row.negatives), row.teacher, counts["too_few"]) == (["n"], None, 1)


def test_the_first_ranks_can_be_skipped():
    documents = [Document(str(row), "x") for row in range(1, 9)]
    (row,), _ = mine([example()], [Listed(documents)], per_question=2, depth=6, skip_top=3)
    assert ids(row.negatives) == ["4", "5"]


def test_samples_come_from_all_ranks_alike_and_from_the_seed():
    documents = [Document(str(row), "x") for row in range(20)]
    asked = [example(question_id=str(number)) for number in range(1000)]
    how = {"per_question": 5, "depth": 20, "skip_top": 10, "sample": True}
    rows, _ = mine(asked, [Listed(documents)], seed=1, **how)
    drawn = Counter(doc_id for row in rows for doc_id in ids(row.negatives))
    assert set(drawn) == {str(row) for row in range(10, 20)}
    # 1,000 questions draw 5 of 10: 500 each, with a standard deviation of 16.
    assert all(abs(count - 500) < 5 * 16 for count in drawn.values())
    alone, _ = mine(asked[700:701], [Listed(documents)], seed=1, **how)
    assert alone == rows[700:701]
    assert mine(asked, [Listed(documents)], seed=2, **how)[0] != rows


@given(num_questions=st.integers(0, 9), batch=st.integers(1, 4))
def test_batches_do_not_change_what_is_mined(num_questions, batch):
    documents = [Document(str(row), "x" * row) for row in range(1, 9)]
    asked = [example(question_id=str(number)) for number in range(num_questions)]
    how = {"per_question": 3, "depth": 8, "sample": True, "keep_below": 4.0, "judge": LengthJudge()}
    assert mine(asked, [Listed(documents)], batch_questions=batch, **how) == mine(asked, [Listed(documents)], **how)


def test_candidates_above_the_limit_give_way_to_the_next_ones():
    lengths = [9, 2, 8, 3, 7, 5, 6]
    documents = [Document(str(length), "x" * length) for length in lengths]
    how = {"per_question": 3, "depth": 7, "keep_below": 5.0, "judge": LengthJudge()}
    (row,), counts = mine([example()], [Listed(documents)], **how)
    assert ids(row.negatives) == ["2", "3", "5"]
    # 9, 2, 8 are tried first, then 3, 7, then 5.
    assert (counts["removed_cross_encoder"], counts["too_few"]) == (3, 0)
    (row,), counts = mine([example()], [Listed(documents)], **how | {"keep_below": 2.0})
    assert (ids(row.negatives), counts["removed_cross_encoder"], counts["too_few"]) == (["2"], 6, 1)


def test_a_teacher_scores_positives_then_negatives_earlier_ones_too(tmp_path):
    earlier = Example(
        "q", "what?", (Document("p", "x"),), (Candidate(Document("e", "y" * 7), 3.0, 2, "bm25").to_document(),)
    )
    path = tmp_path / "earlier.jsonl"
    path.write_bytes(dump_example(earlier))
    file = EarlierFile(str(path))
    sources = [Listed([Document("n", "z" * 4)], "dense")]
    positives = (Document("p", "x"), Document("p2", "xx"))
    asked = [example(positives=positives)]
    (row,), counts = mine(asked, sources, per_question=1, depth=1, teacher=True, judge=LengthJudge(), earlier=file)
    file.close()
    assert [(d.id, d.metadata["source"]) for d in row.negatives] == [("n", "dense"), ("e", "bm25")]
    assert (row.teacher, counts["merged"]) == ((1.0, 2.0, 4.0, 7.0), 1)


def test_merging_joins_rows_of_a_question_and_names_a_wrong_line(tmp_path):
    path = tmp_path / "earlier.jsonl"
    rows = [
        Example("q", "what?", (Document("p", "x"),), (Document(doc_id, "y", metadata={"source": "bm25"}),))
        for doc_id in "abb"
    ]
    other = Example("r", "who?", (Document("p", "x"),))
    path.write_bytes(b"\n".join([b"", *map(dump_example, [*rows, other])]))
    file = EarlierFile(str(path))
    sources = [Listed([Document("b", "y")], "dense")]
    (row, unknown), counts = mine([example(), example(question_id="s")], sources, per_question=1, depth=1, earlier=file)
    assert [(d.id, d.metadata["source"]) for d in row.negatives] == [("b", "dense+bm25"), ("a", "bm25")]
    assert (ids(unknown.negatives), counts["merged"]) == (["b"], 1)
    with pytest.raises(CorpusError, match=r"earlier\.jsonl:8: question 'r' is 'who\?' here, but 'what\?'"):
        mine([example(question_id="r")], sources, per_question=1, depth=1, earlier=file)
    file.close()
    path.write_text('{"question": "what?"}\n', encoding="utf-8")
    with pytest.raises(CorpusError, match=r'earlier\.jsonl:1: has no "positives"'):
        EarlierFile(str(path))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"per_question": 0}, "per_question is 0; wanted 1 or more"),
        ({"skip_top": -1}, "skip_top is -1"),
        ({"depth": 30, "skip_top": 5}, "leaves 25 candidates"),
        ({"keep_below": math.nan}, "keep_below is nan"),
    ],
)
def test_settings_that_cannot_be_are_named(config, message):
    with pytest.raises(ConfigError, match=message):
        MiningConfig(**config)


def test_a_judge_is_needed_for_what_only_it_can_do():
    with pytest.raises(ConfigError, match="need a cross-encoder"):
        Miner([], MiningConfig(teacher=True))


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ({}, "say which documents"),
        ({"passages": "p", "source": SourceKind.BOTH}, "without an index needs --encoder"),
        ({"passages": "p", "encoder": "minilm"}, "give --source dense or both"),
        ({"passages": "p", "cross_encoder": "c"}, "--cross-encoder goes with"),
        ({"passages": "p", "config": MiningConfig(teacher=True)}, "--cross-encoder goes with"),
    ],
)
def test_a_job_that_cannot_be_is_refused(tmp_path, job, message):
    with pytest.raises(ConfigError, match=message):
        MiningJob(questions=("q",), out=tmp_path / "out", **job)


# Axes of a toy space: a document has one view for each of its words, a question is its words' sum.
AXES = {"cat": 0, "dog": 1, "river": 2, "house": 3}


def word_views(texts):
    return [np.array([np.eye(4)[AXES[word]] for word in text.split() if word in AXES]) for text in texts]


def word_sums(texts):
    return np.array([views.sum(axis=0) for views in word_views(texts)])


ENCODER = mvindex.CallableEncoder(word_views, query_function=word_sums, name="words", dim=4)
TOY = [
    Document("cat", "cat"), Document("both", "dog river cat"), Document("dog", "dog"), Document("house", "house"),
]  # fmt: skip


def test_a_document_is_a_dense_candidate_when_any_view_ranks_it(tmp_path):
    with mvindex.create(tmp_path / "toy.mvx", encoder=ENCODER) as index:
        index.add(TOY)
        (found,) = DenseSource(index, exact=True).search(["river"], 2)
    # Only its second view fits, and only it has one that does; the others follow in the order they were added.
    assert [(c.document.id, c.score, c.rank, c.source) for c in found] == [
        ("both", 1.0, 1, "dense"),
        ("cat", 0.0, 2, "dense"),
    ]


def test_dense_mining_refreshes_inside_the_run_and_leaves_nothing(tmp_path):
    asked = [example("cat dog", [TOY[0]], question_id="1"), example("house", [TOY[3]], question_id="2")]
    config = MiningConfig(per_question=2, depth=4, work_folder=tmp_path)
    rows = mine_dense(ENCODER, iter(TOY), iter(asked), config)
    first = next(rows)
    assert ids(first.negatives) == ["both", "dog"]
    assert [path.name for path in next(tmp_path.iterdir()).iterdir()] == ["documents.mvx"]
    assert ids(next(rows).negatives) == ["cat", "both"]
    assert list(rows) == []
    assert list(tmp_path.iterdir()) == []


def test_a_refresh_that_is_broken_off_leaves_nothing(tmp_path):
    rows = mine_dense(ENCODER, TOY, [example("cat", [TOY[0]])] * 3, MiningConfig(per_question=1, work_folder=tmp_path))
    next(rows)
    rows.close()
    assert list(tmp_path.iterdir()) == []


class TestResumableOutput:
    """A part, its state, and what may go on with it."""

    SETTINGS = {"seed": 0, "depth": 200}

    def begin(self, path, num_batches, settings=SETTINGS, **options):
        """Write so many batches and stop as if killed: without an end."""
        with ResumableOutput(path, settings, **options) as output:
            first = output.finished
            for number in range(first, num_batches):
                output.add([b"%d\n" % number], 1, {"negatives": number + 1})
            return first, dict(output.counts)

    def test_goes_on_after_the_last_batch_and_drops_what_follows_it(self, tmp_path):
        path = tmp_path / "out.jsonl"
        self.begin(path, 2)
        with (tmp_path / "out.jsonl.part").open("ab") as file:
            file.write(b"half a li")
        assert self.begin(path, 3) == (2, {"negatives": 3})
        assert (tmp_path / "out.jsonl.part").read_bytes() == b"0\n1\n2\n"

    def test_the_end_leaves_the_file_alone(self, tmp_path):
        path = tmp_path / "out.jsonl"
        with ResumableOutput(path, self.SETTINGS) as output:
            output.work_folder.mkdir()
            output.add([b"row\n"], 1, {})
            output.finish()
        assert [entry.name for entry in tmp_path.iterdir()] == ["out.jsonl"]
        assert path.read_bytes() == b"row\n"

    def test_other_settings_are_named_and_force_begins_anew(self, tmp_path):
        path = tmp_path / "out.jsonl"
        self.begin(path, 2)
        with pytest.raises(ConfigError, match="was begun with depth 200, not 100; .*--force"):
            self.begin(path, 3, {"seed": 0, "depth": 100})
        assert self.begin(path, 2) == (2, {"negatives": 2})
        assert self.begin(path, 1, {"seed": 0, "depth": 100}, force=True) == (0, {"negatives": 1})

    def test_force_goes_on_with_equal_settings(self, tmp_path):
        self.begin(tmp_path / "out.jsonl", 2)
        assert self.begin(tmp_path / "out.jsonl", 2, force=True) == (2, {"negatives": 2})

    def test_an_output_or_a_foreign_part_is_not_overwritten(self, tmp_path):
        path, part = tmp_path / "out.jsonl", tmp_path / "other.jsonl.part"
        path.write_text("mine", encoding="utf-8")
        part.write_text("someone's", encoding="utf-8")
        with pytest.raises(ConfigError, match="exists; choose another name"):
            self.begin(path, 1)
        with pytest.raises(ConfigError, match="does not say how it was made"):
            self.begin(tmp_path / "other.jsonl", 1)
        assert (path.read_text(encoding="utf-8"), part.read_text(encoding="utf-8")) == ("mine", "someone's")

    def test_two_writers_exclude_each_other(self, tmp_path):
        path = tmp_path / "out.jsonl"
        with ResumableOutput(path, self.SETTINGS), pytest.raises(ConfigError, match="another process is writing"):
            self.begin(path, 1)

    def test_a_folder_that_is_not_there_is_named(self, tmp_path):
        with pytest.raises(ConfigError, match="nowhere.*cannot be written"):
            self.begin(tmp_path / "nowhere" / "out.jsonl", 1)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """Folders of tiny BERT classifiers of 1, 2 and 3 labels, with random weights."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    folder = tmp_path_factory.mktemp("classifiers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"the river flows past old house oil crisis what where is it".split()]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", [("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=24, **names)
    torch.manual_seed(0)
    for num_labels in (1, 2, 3):
        config = transformers.BertConfig(
            vocab_size=len(words), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
            max_position_embeddings=24, initializer_range=0.6, num_labels=num_labels,
        )  # fmt: skip
        transformers.BertForSequenceClassification(config).save_pretrained(folder / str(num_labels))
        fast.save_pretrained(folder / str(num_labels))
    return folder


PAIRS = [
    ("where is the river", Document("1", "the river flows past the old house", "river")),
    ("what is it", Document("2", "oil", "")),
    ("what is the oil crisis", Document("3", "the house is old " * 20, "it")),
    ("what", Document("4", "", "crisis")),
]


@pytest.mark.parametrize("num_labels", [1, 2])
def test_a_cross_encoder_scores_each_pair_as_the_model_alone_does(classifier, num_labels):
    import torch
    import transformers

    folder = classifier / str(num_labels)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    wanted = []
    for question, document in PAIRS:
        text = "\n".join(part for part in (document.title, document.text) if part)
        tokens = tokenizer(question, text, truncation="only_second", max_length=24, return_tensors="pt")
        with torch.no_grad():
            logits = model(**tokens).logits[0].tolist()
        wanted.append(logits[0] if num_labels == 1 else logits[1] - logits[0])
    judge = CrossEncoder(str(folder), device="cpu")
    assert np.ptp(wanted) > 0.01
    np.testing.assert_allclose(judge.score(PAIRS), wanted, atol=2e-5)
    assert judge.score(PAIRS * 20) == pytest.approx(judge.score(PAIRS) * 20, abs=2e-5)
    assert judge.score([]) == []


def test_what_is_no_cross_encoder_is_refused(classifier, tmp_path):
    with pytest.raises(CheckpointError, match="classifies into 3 labels"):
        CrossEncoder(str(classifier / "3"))
    with pytest.raises(CheckpointError, match="no such directory"):
        CrossEncoder(str(tmp_path / "nothing"))
    with pytest.raises(CheckpointError, match="no tokenizer"):
        CrossEncoder(str(tmp_path))
    copy = tmp_path / "no head"
    copy.mkdir()
    for file in (classifier / "1").iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    config = json.loads((copy / "config.json").read_text(encoding="utf-8"))
    (copy / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}), encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"the weights lack bert\.encoder\.layer\.2"):
        CrossEncoder(str(copy))
    (copy / "model.safetensors").rename(copy / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        CrossEncoder(str(copy))

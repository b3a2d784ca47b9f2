"""The unigram tokenizer cuts as that of `tokenizers` does, and quantised weights keep to their bounds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from mvindex.encoder.levels import PAIR_LEVELS, WEIGHT_LEVELS, round_weights
from mvindex.encoder.unigram import Unigram

SPECIAL = {"bos": 0, "pad": 1, "eos": 2, "unk": 3}
PIECES = [
    ("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("\u2581", -3.0), ("a", -4.0), ("b", -4.5),
    ("ab", -6.5), ("\u2581a", -5.5), ("\u2581ab", -6.0), ("ba", -7.0), ("\u2581b", -7.5), ("é", -8.0), 
    ("\u2581é", -9.0), ("日", -5.0), ("日本", -8.5), ("1", -5.0),
]  # fmt: skip
TEXTS = st.text(alphabet="ab é\u0301e日本１1\u200b\t\n\u2581~x🙂", max_size=40)


def reference():
    tokenizers = pytest.importorskip("tokenizers")
    found = tokenizers.Tokenizer(tokenizers.models.Unigram(PIECES, unk_id=SPECIAL["unk"]))
    parts = tokenizers.normalizers, tokenizers.pre_tokenizers
    found.normalizer = parts[0].Sequence([parts[0].Nmt(), parts[0].NFKC()])
    found.pre_tokenizer = parts[1].Sequence([parts[1].WhitespaceSplit(), parts[1].Metaspace()])
    return found


REFERENCE, OURS = reference(), Unigram(PIECES, SPECIAL)


def test_the_pieces_of_the_largest_sum_are_taken():
    # "▁ab", -6, is above "▁" and "ab", -9.5; "▁" and "ba", -10, are above "▁b" and "a", -11.5.
    assert OURS.encode_batch_fast(["ab ba"], add_special_tokens=False)[0].ids == [9, 4, 10]


@given(TEXTS)
def test_ids_are_those_of_tokenizers(text):
    [found] = OURS.encode_batch_fast([text], add_special_tokens=False)
    assert list(found.ids) == REFERENCE.encode(text, add_special_tokens=False).ids


def test_special_tokens_stand_around_a_text_and_their_names_in_it_are_text():
    found = OURS.encode("a")
    assert (found.ids, found.special_tokens_mask) == ([0, 8, 2], [1, 0, 1])
    [inside] = OURS.encode_batch_fast(["a </s>"], add_special_tokens=False)
    assert not {0, 1, 2} & set(inside.ids) and 3 in inside.ids


def test_a_long_word_takes_time_by_its_length():
    [found] = OURS.encode_batch_fast(["ab" * 50_000], add_special_tokens=False)
    assert len(found.ids) == 50_000


WEIGHTS = arrays.arrays(
    np.float32, st.tuples(st.integers(1, 6).map(lambda half: 2 * half), st.integers(1, 4)),
    elements=st.floats(-8, 8, width=32),
)  # fmt: skip


@given(WEIGHTS)
def test_no_weight_and_no_pair_of_one_sign_is_over(weight):
    levels, scales = round_weights(weight)
    wide = levels.astype(int)
    assert np.abs(wide).max() <= WEIGHT_LEVELS
    first, second = wide[::2], wide[1::2]
    assert (np.abs(first + second)[first * second > 0] <= PAIR_LEVELS).all()
    # Half a level, or one where a pair was both rounded up.
    assert (np.abs(wide * scales - weight) <= (1.001 + 1e-5) * scales).all()
    np.testing.assert_array_equal(round_weights(-weight)[1], scales)

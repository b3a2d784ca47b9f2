"""Terms of languages that are written without spaces."""

import pytest
import xxhash

import mvindex
from mvindex.corpus.text.words import pairs_and_letters, replace_runs
from mvindex.store.lexical.tokenizer import Lexical, detect_lexical, tokenize, tokenize_query

TEXTS = {
    "oil-zh": "1973年的石油危机使油价上涨了四倍。阿拉伯国家对美国实行石油禁运。",
    "plague-zh": "黑死病在十四世纪杀死了欧洲三分之一的人口。",
    "river-zh": "长江是亚洲最长的河流,发源于青藏高原。",
    "tea-zh": "绿茶起源于中国,人们每天都喝茶。",
    "oil-ja": "1973年の石油危機で原油価格は四倍になった。中東の産油国が輸出を止めた。",
    "train-ja": "新幹線は東京と大阪を二時間半で結ぶ高速鉄道である。",
    "mountain-ja": "富士山は日本で一番高い山で、夏には多くの人が登る。",
    "cat-ja": "猫は一日の大半を眠って過ごし、夜に狩りをする。",
    "oil-th": "วิกฤตการณ์น้ำมันเริ่มขึ้นในเดือนตุลาคม ราคาน้ำมันเพิ่มขึ้นสี่เท่า",
    "rice-th": "ชาวนาปลูกข้าวในฤดูฝนและเก็บเกี่ยวในฤดูหนาว",
    "temple-th": "วัดพระแก้วเป็นวัดที่มีชื่อเสียงที่สุดในกรุงเทพมหานคร",
    "oil-en": "The oil crisis of 1973 made petrol expensive. OPEC の石油 was not sold.",
}


@pytest.fixture(scope="module", params=["auto", "bigrams"])
def index(request, tmp_path_factory):
    encoder = mvindex.CallableEncoder(lambda texts: [[1.0, 0.0]] * len(texts), name="constant")
    path = tmp_path_factory.mktemp("unspaced") / "x.mvx"
    with mvindex.create(path, encoder=encoder, lexical=request.param) as made:
        made.add([mvindex.Document(name, text) for name, text in TEXTS.items()])
        yield made


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("石油禁运", "oil-zh"), ("欧洲人口", "plague-zh"), ("亚洲的河流", "river-zh"), ("中国绿茶", "tea-zh"),
        ("原油価格", "oil-ja"), ("高速鉄道", "train-ja"), ("富士山に登る", "mountain-ja"), ("猫の狩り", "cat-ja"),
        ("ราคาน้ำมัน", "oil-th"), ("ปลูกข้าว", "rice-th"), ("วัดในกรุงเทพ", "temple-th"), ("petrol OPEC", "oil-en"),
    ],
)  # fmt: skip
def test_words_inside_a_sentence_are_found(index, query, best):
    assert index.info().lexical == "bigrams"
    assert index.search(query, mode="lexical").hits[0].id == best


def test_what_shares_no_pair_is_not_found(index):
    assert index.search("量子力学", mode="lexical").hits == ()
    found = {hit.id for hit in index.search("石油", mode="lexical").hits}
    assert found == {"oil-zh", "oil-ja", "oil-en"}


def hashes_of(terms):
    return sorted(xxhash.xxh3_64_intdigest(term.encode()) for term in terms)


@pytest.mark.parametrize("kind", Lexical)
def test_a_text_has_pairs_and_letters_and_a_query_only_pairs(kind):
    text = "石油危機。 Café 1973"
    others, pairs = ["1973", "cafe"], ["石油", "油危", "危機"]
    assert tokenize([text], kind).hashes.tolist() == hashes_of([*others, *pairs, *"石油危機"])
    assert tokenize_query(text, kind).hashes.tolist() == hashes_of([*others, *pairs])
    assert tokenize_query("油", kind).hashes.tolist() == hashes_of(["油"])


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("plain text", "plain text"),
        ("水", " 水 "),
        ("a石油b", "a 石油 石 油 b"),
        ("석유는", " 석유 유는 석 유 는 "),
        ("มัน", " มัน มั น ม "),
        ("", ""),
    ],
)
def test_runs_become_pairs_and_letters(text, split):
    assert replace_runs(text, pairs_and_letters) == split


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["黑死病在十四世纪。"], Lexical.BIGRAMS),
        (["The plague of the year was known as 黑死病 in China and it was of the East."] * 3, Lexical.BIGRAMS),
        (["The oil crisis of the year was a shock to the economy of the world."] * 99 + ["石油"], Lexical.ENGLISH),
        (["Die Krise war ein Schock."], Lexical.UNICODE),
        (["석유 위기는 1973년에 시작되었다."], Lexical.BIGRAMS),
    ],
)
def test_the_first_texts_decide(texts, kind):
    assert detect_lexical(texts) is kind

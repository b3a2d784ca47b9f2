"""The normal form of texts, and words found in their other written forms, through the whole engine."""

import re
import sys
import time
import unicodedata

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

import mvindex
from mvindex.corpus.text import words
from mvindex.corpus.text.words import normal_form, normalise
from mvindex.store.lexical.tokenizer import Lexical

KINDS = ["auto", *(kind.value for kind in Lexical)]

# The same word, as one writer and as another writes it; each finds the other.
SAME = {
    "german capitals": ("Straße", "STRASSE"),
    "german small letters": ("strasse", "Straße"),
    "german capital sharp s": ("GROẞ", "groß"),
    "turkish dotted capital": ("İstanbul", "istanbul"),
    "latin accent": ("Crème", "creme"),
    "latin decomposed": ("Cre\u0300me", "Crème"),
    "polish ogonek": ("książę", "ksiaze"),
    "vietnamese decomposed": ("Tie\u0302\u0301ng", "Tiếng"),
    "vietnamese without marks": ("Việt", "Viet"),
    "greek final sigma": ("ΛΟΓΟΣ", "λογος"),
    "greek decomposed": ("Αθη\u0301να", "Αθήνα"),
    "greek tonos and oxia": ("λ\u1f79γος", "λόγος"),
    "greek accented capitals": ("ΑΘΉΝΑ", "Αθήνα"),
    "russian capitals": ("МОСКВА", "Москва"),
    "russian decomposed": ("Толстои\u0306", "Толстой"),
    "russian stress": ("за\u0301мок", "замок"),
    "ukrainian decomposed": ("Киі\u0308в", "Київ"),
    "arabic tatweel": ("محـــمد", "محمد"),
    "arabic vowel marks": ("مُحَمَّد", "محمد"),
    "arabic dagger alef": ("رحمٰن", "رحمن"),
    "arabic presentation forms": ("\ufee3\ufea4\ufee4\ufeaa", "محمد"),
    "arabic lam alef": ("س\ufefbم", "سلام"),
    "persian non-joiner": ("می\u200cروم", "میروم"),
    "hebrew points": ("שָׁלוֹם", "שלום"),
    "hebrew presentation form": ("\ufb2aלום", "שלום"),
    "hindi nukta": ("क़लम", "कलम"),
    "hindi nukta composed": ("\u0958लम", "क\u093cलम"),
    "hindi nukta of a composed letter": ("सड\u093cक", "\u0938\u095cक"),
    "hindi joiner": ("क\u094d\u200dष", "क\u094dष"),
    "bengali nukta": ("পড়া", "পডা"),
    "bengali two-part vowel": ("ক\u09c7\u09be", "ক\u09cb"),
    "punjabi nukta": ("ਸ਼ੇਰ", "ਸੇਰ"),
    "thai am in two parts": ("ท\u0e4d\u0e32งาน", "ทำงาน"),
    "thai zero-width space": ("กรุง\u200bเทพ", "กรุงเทพ"),
    "japanese half-width": ("ｶﾞｽ会社", "ガス会社"),
    "japanese decomposed": ("か\u3099っこう", "がっこう"),
    "japanese square word": ("㌔", "キロ"),
    "chinese compatibility ideograph": ("\uf9dc山", "隆山"),
    "chinese radical": ("\u2f08工", "人工"),
    "chinese variation selector": ("葛\U000e0100城", "葛城"),
    "korean jamo": ("\u1112\u1161\u11ab\u1100\u116e\u11a8", "한국"),
    "full-width latin": ("ＷＩＤＥ", "wide"),
    "full-width digits": ("２０２４", "2024"),
    "mathematical letters": ("𝐇𝐞𝐥𝐥𝐨", "hello"),
    "ligature": ("\ufb01nance", "finance"),
    "ligature of three": ("o\ufb03ce", "office"),
    "soft hyphen": ("refrig\u00ader\u00adator", "refrigerator"),
    "zero-width space": ("data\u200bbase", "database"),
    "word joiner": ("wi\u2060fi", "wifi"),
    "byte order mark": ("\ufeffhead", "head"),
    "mark of direction": ("ab\u200fcd", "abcd"),
    "grapheme joiner": ("a\u034fb", "ab"),
    "superscript": ("x²", "x2"),
    "roman numeral": ("Ⅷ", "viii"),
    "no-break space": ("New\u00a0York", "york"),
    "number sign": ("№5", "5"),
    "trade mark": ("Intel™", "intel"),
    "unit": ("5㎏", "kg"),
    "georgian capitals": ("ᲗᲑᲘᲚᲘᲡᲘ", "თბილისი"),
    "cherokee capitals": ("ꭳꮟᏺ", "ꭳꮟᏺ"),
}  # fmt: skip

# One of the two must not find the other.
OTHER = {
    "thai vowel": ("ที่", "ที"),
    "thai vowel inside": ("ดิน", "ดึน"),
    "hindi matra": ("मिल", "मील"),
    "hindi virama": ("कल\u094dप", "कलप"),
    "tamil vowel": ("தமிழ்", "தமழ்"),
    "japanese voicing": ("ガス", "カス"),
    "russian short i": ("Толстой", "Толстои"),
    "russian yo": ("всё", "все"),
    "greek accent": ("νόμος", "νομός"),
    "danish letter": ("øre", "ore"),
    "korean syllable": ("한국", "한글"),
    "turkish dotless i": ("ısı", "isi"),
    "consonants of a hindi word": ("हिन्दी", "हनद"),
}

# A text, and a query of one letter that occurs in a longer word of it.
LETTERS = {
    "chinese": ("黑死病在十四世纪。", "病"),
    "chinese at the end": ("中国绿茶", "茶"),
    "japanese": ("富士山に登る", "山"),
    "katakana": ("ガソリン", "ソ"),
    "half-width katakana": ("ガソリン", "ｿ"),
    "korean": ("석유 위기", "석"),
    "korean beside latin": ("AI가격", "가"),
    "thai": ("น้ำมันแพง", "พ"),
    "thai below its mark": ("น้ำมันแพง", "น"),
    "burmese": ("မြန်မာ", "မ"),
}

FILLER = ["The quick brown fox jumps.", "Nothing here 1973.", "Alle Menschen sind frei."]


@pytest.fixture(scope="module", params=KINDS)
def found(request, tmp_path_factory):
    """Return the ids that a query finds among all texts of the tables."""
    encoder = mvindex.CallableEncoder(lambda texts: [[1.0, 0.0]] * len(texts), name="constant")
    texts = [text for table in (SAME, OTHER, LETTERS) for pair in table.values() for text in pair]
    with mvindex.create(tmp_path_factory.mktemp("forms") / "x.mvx", encoder=encoder, lexical=request.param) as index:
        index.add([mvindex.Document(text, f"before {text}, after") for text in dict.fromkeys(texts)])
        index.add([mvindex.Document(f"filler-{number}", text) for number, text in enumerate(FILLER)])
        yield lambda query: {hit.id for hit in index.search(query, 1000, mode="lexical").hits}


@pytest.mark.parametrize("name", SAME)
def test_a_word_is_found_in_its_other_written_form(found, name):
    one, other = SAME[name]
    assert {one, other} <= found(other)
    if " " not in normal_form(one):
        assert {one, other} <= found(one)


@pytest.mark.parametrize("name", OTHER)
def test_another_word_is_not_found(found, name):
    one, other = OTHER[name]
    assert one in found(one) and other not in found(one)
    assert other in found(other) and one not in found(other)


@pytest.mark.parametrize("name", LETTERS)
def test_a_single_letter_finds_its_documents(found, name):
    text, letter = LETTERS[name]
    assert text in found(letter)
    assert not found(letter) & {f"filler-{number}" for number in range(len(FILLER))}


def test_words_of_a_korean_sentence_are_found_without_their_particles(found):
    assert "석유 위기" in found("석유를") and "석유 위기" not in found("유석")


def lower_ascii(text):
    return re.sub("[A-Z]+", lambda part: part[0].lower(), text)


CHARS = st.characters(exclude_categories=("Cs", "Cn"))
MARKS = st.characters(categories=("Mn", "Mc", "Me", "Cf"))


@settings(max_examples=200, deadline=None)
@given(st.lists(CHARS | MARKS | st.sampled_from("aEßﬁと가नк\u1100\u1161\u11a8\u093c\u0308"), max_size=8).map("".join))
def test_only_what_differs_is_normalised_and_once_is_enough(text):
    whole = normalise(text)
    assert lower_ascii(normal_form(text)) == lower_ascii(whole) == normalise(whole)
    assert normalise(unicodedata.normalize("NFD", text)) == whole


@pytest.mark.parametrize("unit", ["e\u0301", "\u0301", "\u65e5\u672c", "a\u00e9 \u00bd ", "\ufb01x", "\u0e01\u0e33 "])
def test_a_long_text_has_the_form_of_its_pieces(unit, monkeypatch):
    text = unit * 300
    whole = normal_form(text)
    monkeypatch.setattr("mvindex.corpus.text.words._PIECE_CHARS", 7)
    assert normal_form(text) == whole


@settings(max_examples=200, deadline=None)
@given(
    st.lists(CHARS | MARKS | st.sampled_from("aEßﬁと가नк\u1100\u1161\u11a8\u093c\u0308\uff9e"), max_size=8).map("".join)
)
def test_a_text_has_the_form_of_its_pieces_wherever_it_is_cut(text):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "_PIECE_CHARS", 1)
        pieces = normal_form(text)
    assert lower_ascii(pieces) == lower_ascii(normal_form(text))


def test_plain_characters_are_their_own_normal_form():
    plain = re.compile(f"[{words._PLAIN}]")
    chars = [chr(code) for code in range(0x80, sys.maxunicode + 1) if plain.match(chr(code))]
    assert len(chars) > 30_000
    assert not [char for char in chars if normalise.__wrapped__(char) != char or unicodedata.combining(char)]


def test_what_is_not_seen_is_what_unicode_says():
    ignorable = regex.compile(r"\p{Default_Ignorable_Code_Point}")
    codes = [code for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    assert [code for code in codes if bool(words._IGNORABLE.match(chr(code))) != bool(ignorable.match(chr(code)))] == []


@given(
    st.text("a\u0301\u0323\u0345\u034f\u0344\u0f73\uff9e\u3099\u05b0\u20dd\u200b\u1ec7\u2026\uac00\u11a8", min_size=31)
)
@settings(max_examples=300)
def test_marks_in_a_row_have_the_form_that_unicode_says(text):
    for form in ("NFC", "NFKD"):
        assert words._normalised(form, text * 3) == unicodedata.normalize(form, text * 3)


def test_every_character_that_begins_with_a_mark_counts_as_one_in_a_long_run():
    begins = [char for char in map(chr, range(sys.maxunicode + 1)) if _begins_with_mark(char)]
    assert len(begins) > 900
    assert [char for char in begins if not words._LONG_RUN.fullmatch(char * 31)] == []


def _begins_with_mark(char):
    return unicodedata.combining(unicodedata.normalize("NFKD", char)[0]) > 0


@pytest.mark.parametrize("between", ["", "\u034f", "\u0640", "\u20dd"])
def test_many_marks_on_a_letter_take_time_that_grows_with_their_number(between):
    def cpu_s(size):
        text = "a" + "\u0359" * size + between + "\u0323" * size + "\u0301" * size + between + "\u0316" * size
        begin = time.process_time()
        normal_form(text)
        return time.process_time() - begin

    # The square would take 64 times as long.
    assert cpu_s(16_000) < 24 * min(cpu_s(2_000) for _ in range(3))

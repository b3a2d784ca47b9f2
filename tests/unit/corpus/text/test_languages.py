"""Sentences of ten languages: what is cited, and what the views of e5-views stand for, are whole sentences."""

import pytest

from mvindex.corpus.text.sentences import split_in_languages, split_sentences
from mvindex.corpus.text.units import split_units

# Of each language texts whose sentences are between bars.
SENTENCES = {
    "de": [
        "Der Rhein entspringt z. B. in den Alpen.| Er mündet u. a. bei Rotterdam, vgl. Abb. 3, in die Nordsee.",
        "Am 3. Oktober 1990 wurde Deutschland vereinigt.| „Das ist gut.“| Dr. Müller sagte: „Wann kommst du?“",
        "Ca. 20 % bzw. 30 % fehlen.| Prof. Dr. h. c. Schmidt wohnt in der Bahnhofstr. 5 in Köln.",
        "Im 19. Jahrhundert war es anders.| Über alles wurde geredet.",
    ],
    "fr": [
        "M. Dupont et Mme Durand habitent à Paris.| « Où allez-vous ? » demanda-t-il.| Il partit !| Oui.",
        "L'art. 5 s'applique, cf. p. 12.| Env. 300 av. J.-C., la ville fut fondée.| Était-elle grande ?| Non.",
    ],
    "es": [
        "¿Dónde nació Cervantes?| Nació en Alcalá de Henares.| ¡Qué sorpresa!| ¿Cuándo?| En el s. XVI.",
        "El Sr. García y la Sra. López viven en EE. UU. desde 1990.| Véase p. ej. la pág. 12.",
    ],
    "it": ["Il sig. Rossi abita a Roma.| Quando?| Nel sec. XIII.| Perché no!| Vedi pag. 5, art. 3 ecc. e così via."],
    "pt": ["A Dra. Costa mora na Av. da Liberdade, n.º 5.| Quando?| Em 1974.| Ver pág. 12, art. 5.º da lei.| É ali."],
    "nl": ["Dhr. de Vries en Mevr. Jansen e.a. kwamen.| Dit is bijv. een voorbeeld, d.w.z. een geval.| Wanneer?"],
    "pl": [
        "Prof. Nowak urodził się w 1950 r. w Krakowie.| Ul. Długa 5 jest np. w Gdańsku, tzn. na północy.| Zob. s. 12."
    ],
    "ru": [
        "А. С. Пушкин родился в 1799 г. в Москве.| Население — 12 млн. человек, т. е. много.| Ул. Ленина, д. 5.",
        "«Куда ты идёшь?» — спросил он.| Он ушёл!| «Да.»| Ещё нет.",
    ],
    "zh": ["北京是中国的首都。|长江是最长的河流!|它流入东海吗？|是的。|“你好。”|他说。|价格是3.5元。"],
    "ja": ["東京は日本の首都です。|とても大きい！|「どこへ行くの？」と彼は聞いた。|はい。|価格は3.5円です。"],
}
CASES = [(language, text) for language, texts in SENTENCES.items() for text in texts]


@pytest.mark.parametrize(("language", "text"), CASES)
@pytest.mark.parametrize("split", [split_units, split_in_languages], ids=["citations", "views"])
def test_sentences_are_whole(split, language, text):
    expected = [sentence.strip() for sentence in text.split("|")]
    whole = text.replace("|", "")
    assert [whole[begin:end] for begin, end in split(whole)] == expected


ENGLISH = (
    "Dr. Smith met Mr. Jones on Jan. 5. They talked in Washington, D.C. Then they left! “Why?” Nobody knows. "
    "It sets the env. The str is kept. He moved to L.A., CA. It was art. In 1973 OPEC acted. \u201cYes.\u201d No."
)


def test_english_is_cut_as_before():
    assert split_in_languages(ENGLISH) == split_sentences(ENGLISH)
    assert [ENGLISH[begin:end] for begin, end in split_units(ENGLISH)][-7:] == [
        "It sets the env.", "The str is kept.", "He moved to L.A., CA.", "It was art.", "In 1973 OPEC acted.",
        "\u201cYes.\u201d", "No.",
    ]  # fmt: skip


@pytest.mark.parametrize("split", [split_units, split_in_languages], ids=["citations", "views"])
def test_a_text_without_capitals_has_sentences(split):
    text = "the plague killed a third of europe .|he met dr. friedman in may.|nobody knows why."
    expected, whole = text.split("|"), text.replace("|", " ")
    assert [whole[begin:end] for begin, end in split(whole)] == expected
    # One capital, and small letters go on.
    assert len(split(whole.replace("plague", "Plague"))) == 1


@pytest.mark.parametrize("text", ["", " ", "。", "¿", "« ", "a. " * 3, "!" * 9, "日!日"])
def test_nothing_visible_is_lost(text):
    spans = split_in_languages(text)
    assert "".join(text[begin:end] for begin, end in spans).replace(" ", "") == text.replace(" ", "")

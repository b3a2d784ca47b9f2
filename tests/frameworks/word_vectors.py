"""Vectors worked out by hand: one dimension a word of a small vocabulary, counts of them."""

WORDS = ("oil", "embargo", "price", "plague", "crimea", "population", "europe", "began", "killed")


def word_counts(text):
    """How often each word stands in the text; the last dimension is 1, so that no vector is zero."""
    words = [word.strip(".,?!").lower() for word in text.split()]
    return [float(words.count(word)) for word in WORDS] + [1.0]


OIL = "The embargo on oil began in October. By March the price of oil had risen. It was a shock."
PLAGUE = "The plague reached Crimea. It killed a third of Europe. The population recovered late."

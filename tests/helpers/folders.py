"""A folder of notes, an index of it, and what an index should then hold, computed plainly."""

import hashlib

import mvindex


def letters(text):
    """Return a vector of a text: how often each of eight letters occurs, and one that is never zero."""
    return [1.0, *(float(text.count(letter)) for letter in "aeiornt")]


class Counting:
    """An encoder's function that counts the texts that it is given."""

    def __init__(self):
        self.texts = 0

    def __call__(self, texts):
        self.texts += len(texts)
        return [[letters(text)] for text in texts]

    def encoder(self):
        return mvindex.CallableEncoder(self, query_function=lambda texts: list(map(letters, texts)), name="letters")


def write(folder, **files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.unlink()
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content)


def held(index):
    """Return the documents of an index, by id, as plain values."""
    return {one.id: (one.title, one.text, dict(one.metadata)) for one in index}


def documents_of(folder):
    """Return what read_files gives of a folder, by id, as plain values."""
    return {one.id: (one.title, one.text, dict(one.metadata)) for one in mvindex.read_files(folder)}


def note(number, version=0):
    """Return the text of a note of two sections, different for each number and version."""
    word = hashlib.sha256(f"{number} {version}".encode()).hexdigest()[:12]
    return f"# Note {number}\n\nIt speaks of {word}.\n\n## More\n\nAnd of {word[::-1]} in version {version}.\n"

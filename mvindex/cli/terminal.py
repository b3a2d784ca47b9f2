"""Text as a terminal may show it."""

# What a terminal would obey rather than show: each becomes one sign, so that spans keep their places.
_SIGNS = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"}
_SIGNS |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)


def visible(text: str) -> str:
    """Return the text with a sign for every control character but tab and line feed: ESC as ␛, C1 as �."""
    return text.translate(_SIGNS)

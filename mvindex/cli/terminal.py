"""Text that is safe to show on a terminal."""

# Control characters, which a terminal would obey. Each becomes one character, so that spans stay valid.
_SYMBOLS = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"}
_SYMBOLS |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)


def escape_controls(text: str) -> str:
    """Replace every control character but tab and line feed by a symbol: ESC by ␛, C1 controls by �."""
    return text.translate(_SYMBOLS)

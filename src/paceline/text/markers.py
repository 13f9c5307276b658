"""Finds a marker in text that is still arriving."""


def before_marker(text: str, marker: str) -> tuple[str, str, bool]:
    """(text before the first marker, text after it, True), or (text that is certainly before one, the rest, False)."""
    before, found, after = text.partition(marker)
    if found:
        return before, after, True
    num_held = next((n for n in range(min(len(marker) - 1, len(text)), 0, -1) if text.endswith(marker[:n])), 0)
    split = len(text) - num_held
    return text[:split], text[split:], False

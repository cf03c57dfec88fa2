"""What a text holds besides words: pauses, the wished length, emoji; and whether words are left without them."""

import regex

PAUSE = r"\[pause\s[^\[\]]*+\]"
LENGTH = r"\$\{token:[0-9]{1,9}\}"
"""The wished length in frames, in front of a text."""

EMOJI = (
    r"(?:\p{RI}{2}"
    r"|[\U0001f000-\U0001f0ff\U0001f10d-\U0001faff\u2600-\u2775\u2794-\u27bf\p{Emoji_Presentation}](?!\ufe0e)"
    r"[\ufe0f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]*+"
    r"|\p{Extended_Pictographic}[\ufe0f\U0001f3fb-\U0001f3ff]++)"
)
"""One emoji, without the joiners of a sequence. What is as often text (©, ™, ↔) counts only if it asks to be drawn."""

_KEYCAP = r"[0-9#*](?:\ufe0f\u20e3?|\u20e3)"
_SILENT = regex.compile(rf"{PAUSE}|{LENGTH}|{_KEYCAP}|.\ufe0f\u20e3?", regex.DOTALL)
_SPOKEN = regex.compile(r"[[\p{L}\p{N}]--[\u115f\u1160\u3164\uffa0]]", regex.VERSION1)
"""Letters and digits; not the Hangul fillers, letters by category that are nothing to the eye or ear."""


def something_to_say(text: str) -> bool:
    """Whether `text` holds a letter or digit outside pauses, the wished length and what is drawn as emoji."""
    return _SPOKEN.search(_SILENT.sub("", text)) is not None

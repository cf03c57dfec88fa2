"""Letters, quotes, dashes and blanks in their plain forms, and no emoji."""

from unicodedata import normalize

import regex

from pipeline.marks import EMOJI

_CJK = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Bopomofo}]")
_UNSEEN = regex.compile(r"[\ufeff\u00ad\u2060\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_NEWLINE = regex.compile(r"\r\n|[\r\v\f\x85\u2028\u2029]")
_BLANKS = regex.compile(r"[^\S\n]++|[\x00-\x08\x0e-\x1f\x7f-\x9f]++")
_EMPTY_LINES = regex.compile(r"\n{3,}+")
_COMPATIBLE = regex.compile(r"[\ufb00-\ufb06\uff10-\uff19\uff21-\uff3a\uff41-\uff5a％＄￥￡\U0001d400-\U0001d7ff]")
"""Ligatures, full-width letters and digits, and the mathematical alphabets used as fancy fonts: never punctuation."""
_FULL_WIDTH = regex.compile(r"[\uff01-\uff5e]")
_KEYCAP = regex.compile(r"([0-9#*])(?:\ufe0f\u20e3?|\u20e3)")
_EMOJI = regex.compile(rf"(?<! ) ?({EMOJI}(?:[\u200d ]?{EMOJI})*+)\u200d?+", regex.VERSION1)
_PLAIN_QUOTES = str.maketrans("“”„‟‘’‚‛", '""""' + "''''")
_PLAIN_DASHES = str.maketrans("‐‑‒―", "--–—")
_REPEATS = [
    (regex.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\u2212(?=\d)", "-"),
        (r"(?<=\w)---?(?=\w)|(?<= )---?(?= )", "—"),
        (r"([!！])[!！]++(?![?？])", r"\1"),
        (r"([?？])[?？]++(?![!！])", r"\1"),
        (r"([?？!！])(?=[!！?？]{2})[!！?？]++", "?!"),
        (r"!\?", "?!"),
        (r"\.{4,}+", "..."),
        (r"…{3,}+", "……"),
        (r"([,;、，；。])\1++", r"\1"),
        (r" ?[_=*#~^|+-]{4,}+", " "),
    )
]


def plain(text: str) -> str:
    """`text` in plain type. Emoji go: read by name they would drown the sentence ("smiling face with open mouth").

    Text with East Asian letters keeps its own punctuation and quotes.
    """
    text = _BLANKS.sub(" ", _UNSEEN.sub("", _NEWLINE.sub("\n", text)))
    text = _KEYCAP.sub(r"\1", text)
    text = _EMOJI.sub(lambda match: _in_place_of_emoji(match), text)
    text = _COMPATIBLE.sub(lambda match: normalize("NFKC", match[0]), text).translate(_PLAIN_DASHES)
    if not _CJK.search(text):
        text = _FULL_WIDTH.sub(lambda match: normalize("NFKC", match[0]), text).translate(_PLAIN_QUOTES)
    for pattern, replacement in _REPEATS:
        text = pattern.sub(replacement, text)
    return tidy(text)


def tidy(text: str) -> str:
    """Single blanks, none at the ends of lines, at most one empty line."""
    lines = (line.strip() for line in _BLANKS.sub(" ", text).split("\n"))
    return _EMPTY_LINES.sub("\n\n", "\n".join(lines)).strip()


def _in_place_of_emoji(match: regex.Match) -> str:
    around = match.string[match.start() - 1 : match.start()] + match.string[match.end() : match.end() + 1]
    return " " if len(around) == 2 and around.isalnum() else ""

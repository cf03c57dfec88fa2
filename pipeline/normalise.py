"""Text as it is written turned into text that reads well aloud.

Markup, emoji and fancy type go for every language. English gets its amounts, dates, units and addresses in words; other
languages only what needs no grammar. The number libraries were left aside: num2words (LGPL, last released in
2024) has no cases or genders for the languages that need them, and English needs forty lines.

No step has to be perfect: the whole is repeated until nothing changes, and a text that does not settle, or would lose a
mark or all it has to say, is given back as it came. So normalise(normalise(text)) == normalise(text), always.
"""

import regex

from pipeline import english, measures, web_addresses
from pipeline.marks import LENGTH, PAUSE, something_to_say
from pipeline.markup import HELD, without_markup
from pipeline.typography import plain, tidy

_MOST_PASSES = 6
_IPA = r"[\u0250-\u02af\u1d00-\u1dbfˈˌːˑŋθ]"
_MARK = regex.compile(
    rf"{HELD}|{PAUSE}|{LENGTH}"
    rf"|(?<![\w/:.<])/(?=[^/\n<>]*?{_IPA})[^/\n<>]++/(?!\w)"
    rf"|\[(?=[^\[\]\n]*?{_IPA})[^\[\]\n]++\](?!\()"
)
"""What the model reads by itself, IPA between slashes or brackets among it. Pinyin needs no care: no rule fits it."""


def normalise(text: str, language: str | None) -> str:
    """`text` in plain words for `language`, an English name of pipeline.languages or None; a function of the two.

    With no language named, English rules apply to a text that is surely English. `[pause 3.2s]`, a `${token:N}` prefix
    and IPA stay as they are. A text with something to say keeps something to say; work is linear in its length.
    """
    given = text.strip()
    current = given
    for _ in range(_MOST_PASSES):
        changed = _rewritten(current, language)
        if changed is None:
            break
        if changed == current:
            return current if something_to_say(current) or not something_to_say(given) else given
        current = changed
    return given


def _rewritten(text: str, language: str | None) -> str | None:
    """One pass over the text; None if it would drop a mark."""
    marks = _MARK.findall(text)
    words = plain(without_markup(_MARK.sub(HELD, text)))
    if language == "English" or (language is None and english.is_english(words)):
        words = english.said_in_english(web_addresses.said_in_english(words))
    else:
        words = measures.said_in(language, web_addresses.domains_only(words))
    if words.count(HELD) != len(marks):
        return None
    pieces = tidy(words).split(HELD)
    return "".join([piece for pair in zip(pieces, [*marks, ""], strict=True) for piece in pair])

"""The languages the model was trained on, and how many audio frames a text in them needs."""

import math
import re
import unicodedata

from pipeline.errors import InvalidRequest

LANGUAGES = {
    "Chinese": "zh",
    "Cantonese": "yue",
    "English": "en",
    "Arabic": "ar",
    "Czech": "cs",
    "Danish": "da",
    "Dutch": "nl",
    "Finnish": "fi",
    "French": "fr",
    "German": "de",
    "Greek": "el",
    "Hebrew": "he",
    "Hindi": "hi",
    "Hungarian": "hu",
    "Italian": "it",
    "Japanese": "ja",
    "Korean": "ko",
    "Macedonian": "mk",
    "Malay": "ms",
    "Persian": "fa",
    "Polish": "pl",
    "Portuguese": "pt",
    "Romanian": "ro",
    "Russian": "ru",
    "Spanish": "es",
    "Swahili": "sw",
    "Swedish": "sv",
    "Tagalog": "tl",
    "Thai": "th",
    "Turkish": "tr",
    "Vietnamese": "vi",
}
"""English name to code."""

_NAMES = {spelling.lower(): name for name, code in LANGUAGES.items() for spelling in (name, code)}

_IDEOGRAPH = re.compile(r"[\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]")
_KANA = re.compile(r"[\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f]")
_HANGUL = re.compile(r"[\uac00-\ud7a3]")
_PAUSE = re.compile(r"\[pause\s+(\d{1,4}(?:\.\d{1,4})?)\s*s\]")

_FRAMES_PER_SECOND = 12.5
_FRAMES_PER_IDEOGRAPH = 3.1
_FRAMES_PER_KANA = 2.2
_FRAMES_PER_HANGUL = 1.8
_FRAMES_PER_LETTER = 0.9
_FRAMES_PER_ENGLISH_LETTER = 0.87
_LETTERS_PER_DIGIT = 4
"""A digit is read as a word: "2024" is "twenty twenty-four"."""


def language_name(value: str | None) -> str | None:
    """English name of a language given by name or code in any case; None for None, blank or "auto" (unset).

    Raises InvalidRequest naming the languages for any other value.
    """
    spelling = (value or "").strip().lower()
    if spelling in ("", "auto"):
        return None
    if spelling not in _NAMES:
        known = ", ".join(f"{name} ({code})" for name, code in LANGUAGES.items())
        raise InvalidRequest(f"language {value!r} is not one of: auto, {known}", param="language")
    return _NAMES[spelling]


def longest_pause(text: str) -> float:
    """Seconds of the longest `[pause 3.2s]` in the text, 0 without one."""
    return max(map(float, _PAUSE.findall(text)), default=0.0)


def estimated_frames(text: str, language: str | None) -> int:
    """Audio frames (80 ms each) that `text` needs, roughly: for budgets, not for truth.

    Counts characters by script, at the rates known for the languages that use it, so text in another script
    than its language's is not starved; `language` (an English name or None) settles what a script leaves
    open. Pauses written `[pause 3.2s]` count their seconds.
    """
    pauses = sum(float(seconds) for seconds in _PAUSE.findall(text)) * _FRAMES_PER_SECOND
    spoken = unicodedata.normalize("NFC", _PAUSE.sub("", text))
    frames = pauses + sum(frames_of(character, language) for character in spoken)
    return math.ceil(round(frames, 6))


def frames_of(character: str, language: str | None) -> float:
    if _IDEOGRAPH.match(character):
        return _FRAMES_PER_KANA if language == "Japanese" else _FRAMES_PER_IDEOGRAPH
    if _KANA.match(character):
        return _FRAMES_PER_KANA
    if _HANGUL.match(character):
        return _FRAMES_PER_HANGUL
    letter = _FRAMES_PER_ENGLISH_LETTER if language == "English" else _FRAMES_PER_LETTER
    return letter * _LETTERS_PER_DIGIT if character.isdecimal() else letter

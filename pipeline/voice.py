"""An uploaded voice: what it is, what it may be called, and what can go wrong with it."""

import unicodedata
import uuid
from dataclasses import dataclass, field

from pipeline.errors import InvalidRequest, SpeechError

MAX_NAME = 64
MAX_TRANSCRIPT = 2_000
"""A clip has at most 30 s; the fastest speech is below 40 characters a second."""
MAX_DESCRIPTION = 1_000

NAME_RULE = (
    f'a voice\'s name has 1 to {MAX_NAME} letters, digits, spaces and "-", "_", "."; '
    "it starts with a letter or digit and does not end with a space"
)

_PUNCTUATION = " -_."
_UNSEEN = frozenset(
    map(chr, [0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x3164, 0xFFA0])
).union(map(chr, range(0xFE00, 0xFE10)), map(chr, range(0xE0100, 0xE01F0)))
"""Unicode's default-ignorable code points among letters and marks: names that differ in them look the same."""

_LONGEST_DECOMPOSITION = 4
"""A character in NFC comes from at most so many; longer input is never normalised (the time grows quadratically)."""


class VoiceUnknown(SpeechError):
    """There is no uploaded voice of that name, or none any more."""


class VoiceTaken(SpeechError):
    """Another uploaded voice has that name."""


class VoiceProtected(SpeechError):
    """The name is a built-in voice's: nobody can take it or delete it."""


class VoiceLimit(SpeechError):
    """There are as many voices as may be."""


class VoiceUnusable(SpeechError):
    """What is stored of one voice is missing or damaged; the others are not concerned."""


class VoiceStoreError(SpeechError):
    """The store itself cannot be read or written, or is of another version; the cause is chained."""


def voice_taken(name: str) -> VoiceTaken:
    return VoiceTaken(f'there is a voice named "{name}" already; delete it first or choose another name')


def too_many_voices(limit: int) -> VoiceLimit:
    return VoiceLimit(f"there are {limit} voices, as many as this server keeps; delete one first")


def _new_id() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True)
class Voice:
    """What is known of an uploaded voice without its audio."""

    name: str
    """NFC, as `checked_name` returns it"""
    created: int
    """Unix time in seconds"""
    content: str
    """`content_key` of its clip: caches of what is made of the audio go by it, never by the name"""
    transcript: str | None = None
    """What the clip says"""
    description: str | None = None
    id: str = field(default_factory=_new_id)
    """Hex of 128 bits, new with each upload: a voice uploaded again under its name is another one"""

    @property
    def key(self) -> str:
        return name_key(self.name)


def checked_name(name: str) -> str:
    """`name` in NFC. Raises InvalidRequest (param `name`) unless it keeps NAME_RULE.

    Letters, their marks and decimal digits of any script count; what cannot be seen or changes the direction of its
    neighbours does not. The start keeps "." and ".." out, which clients resolve when they are part of a URL.
    """
    if len(name) <= MAX_NAME * _LONGEST_DECOMPOSITION:
        normal = unicodedata.normalize("NFC", name)
        starts_well = bool(normal) and unicodedata.category(normal[0])[0] in "LN"
        if starts_well and len(normal) <= MAX_NAME and normal[-1] != " " and all(map(_may_be_in_name, normal)):
            return normal
    raise InvalidRequest(NAME_RULE, param="name")


def name_key(name: str) -> str:
    """Equal for names that differ only in case, width or composition (Unicode 3.13, D146: compatibility caseless)."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFD", name).casefold())
    return unicodedata.normalize("NFKC", folded.casefold())


def checked_texts(transcript: str | None, description: str | None) -> dict[str, str | None]:
    """Both by name, None for a blank one. Raises InvalidRequest for one that is too long or not Unicode."""
    return {
        "transcript": _checked_text(transcript, MAX_TRANSCRIPT, "ref_text"),
        "description": _checked_text(description, MAX_DESCRIPTION, "description"),
    }


def _checked_text(text: str | None, longest: int, param: str) -> str | None:
    if text is None or not text.strip():
        return None
    if len(text) > longest:
        raise InvalidRequest(f"{param} is longer than {longest} characters", param=param)
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidRequest(f"{param} is not valid Unicode", param=param)
    return text


def _may_be_in_name(character: str) -> bool:
    if character in _PUNCTUATION:
        return True
    category = unicodedata.category(character)
    return (category[0] == "L" or category in ("Mn", "Mc", "Nd")) and character not in _UNSEEN

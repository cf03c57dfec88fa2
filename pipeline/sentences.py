"""Long text in parts that are spoken one after the other, cut where a speaker would stop.

Between two neighbouring letters, digits or marks lies a gap of blanks and punctuation, mostly empty. Each gap has one
best place to cut and a rank: the end of a sentence, of a clause, of a word, or just between two grapheme clusters.
Parts are packed greedily up to the limit and end at the gap of the highest rank in reach, the last such. So every part
has something to say, and all work is one walk over the text.

No library does this: pysbd (last release in 2021) can hang on a run of numbers (its issue 79), blingfire is as old,
wtpsplit is a neural network of its own, and the rule-based sentencex and nupunkt give sentences only: limits,
clauses, pauses and clusters would still be ours. Grapheme clusters come from `regex`, by Unicode's annex 29.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from unicodedata import normalize

import regex

from pipeline import abbreviations
from pipeline.languages import estimated_frames, frames_of
from pipeline.marks import LENGTH, PAUSE, something_to_say


class Rank(IntEnum):
    """How good a place to cut is."""

    CLUSTER = 0
    WORD = 1
    CLAUSE = 2
    SENTENCE = 3


@dataclass(frozen=True, slots=True)
class Cut:
    """A part ends at `end` and the next begins at `start`, offsets into the text with only blanks between."""

    end: int
    start: int
    rank: Rank


_LONGEST_MARK = 60
_LONGEST_ENCLOSED = 300
"""Characters; a quotation or bracket longer than this is cut inside like other text."""
_LOOK_AROUND = 20
"""Characters before and after a gap that can matter: an abbreviation, the first word of a sentence."""

_ATOM = regex.compile(rf"{PAUSE}|{LENGTH}|\[[^\[\]\r\n]{{1,{_LONGEST_MARK}}}\]|\X")
_STOPS = ".!?…‽"
_WIDE_STOPS = "。！？｡．؟۔।॥።፧։։។៕။།\u037e"
"""Stops that need no blank after them."""
_STOP = regex.compile(rf"[{_STOPS}{_WIDE_STOPS};](?: ?[{_STOPS}{_WIDE_STOPS}])*+")
_CLAUSE = regex.compile(r"[;:,–](?=[\p{Pf}\p{Pi}\p{Pe}\"']*+\s)|[،؛、，；：·၊፣፤፥՝—」』]")
_CLOSERS = frozenset("\"'”’»›)]}」』）】》〉〕｝］＞*_")
_CLOSERS_OF_SPACED_SCRIPTS = _CLOSERS | frozenset("“‘«‹")
_OPENERS = regex.compile(r"[\p{Ps}\p{Pi}„‚¿¡$£€#@]")
_NEWLINE = regex.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_BLANKS = regex.compile(r"\s*+")
_BLANK = regex.compile(r"[^\S\u00a0\u202f\u2007]|\u200b")
_WORD_BEFORE = regex.compile(r"[\p{L}\p{M}\p{N}.'’º\-]+$")
_WORD_AFTER = regex.compile(r"\p{L}+")
_GROWING = regex.compile(r"[[\p{L}\p{M}\p{N}]--[\p{Han}\p{Hiragana}\p{Katakana}]]++\Z", regex.VERSION1)
"""A word that may go on, at the end of a text that is still coming."""
_NUMBER_AFTER = regex.compile(r"\p{Nd}|[IVXLC]+\b")
_CJK = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}ー〇々]")
_HIRAGANA = regex.compile(r"\p{Hiragana}")
_WITHOUT_STOPS = regex.compile(r"[\u0e00-\u0eff]")
"""Thai and Lao, where a blank is the only sign of a sentence's end."""
_GREEK = regex.compile(r"\p{Greek}")
_HALF_OF_DAY = regex.compile(r"[ap]\.?m\b", regex.IGNORECASE)
_PAIRS = {"(": ")", "[": "]", "{": "}", "“": "”", "„": "“", "«": "»"}
_PAIRS |= {"「": "」", "『": "』", "（": "）", "【": "】", "《": "》"}
_BRACKET_OR_NEWLINE = regex.compile(rf"""[\n\r"{regex.escape("".join(sorted({*_PAIRS, *_PAIRS.values()})))}]""")


def split_text(text: str, most_frames: int, language: str | None) -> list[str]:
    """Parts of `text`, in order, of at most `most_frames` estimated frames each; `[text]` if it fits or says nothing.

    `language` is an English name of pipeline.languages or None. The first part is a single sentence, so that audio
    starts early; later ones hold as many as fit. A sentence that is too long is cut behind its last clause mark in
    reach, else between words, else between grapheme clusters. The parts differ from the text only by blanks at the
    cuts and ends, and each has something to say. So a part exceeds the limit only where it holds a single letter,
    digit or [mark] with the punctuation and pauses around it.
    """
    if estimated_frames(text, language) <= most_frames or not something_to_say(text):
        return [text]
    atoms = [match.span() for match in _ATOM.finditer(text)]
    cuts = list(_cuts(text, atoms, language))
    frames = _frames_before(text, atoms, language)
    begin, finish = len(text) - len(text.lstrip()), len(text.rstrip())
    parts = []
    for cut in _chosen(cuts, frames, begin, finish, most_frames):
        parts.append(text[begin : cut.end])
        begin = cut.start
    return [*parts, text[begin:finish]]


def _chosen(cuts: list[Cut], frames: list[float], begin: int, finish: int, most_frames: int) -> Iterator[Cut]:
    limit = most_frames + 1e-6
    ends = [frames[cut.end] for cut in cuts]
    last = _last_of_rank(cuts)
    first = 0
    while first < len(cuts) and frames[finish] - frames[begin] > limit:
        reach = max(bisect_right(ends, frames[begin] + limit) - 1, first)
        choice = next(last[rank][reach] for rank in reversed(Rank) if last[rank][reach] >= first)
        if first == 0 and cuts[choice].rank == Rank.SENTENCE:
            choice = next(index for index, cut in enumerate(cuts) if cut.rank == Rank.SENTENCE)
        yield cuts[choice]
        begin, first = cuts[choice].start, choice + 1


def _last_of_rank(cuts: list[Cut]) -> dict[Rank, list[int]]:
    """For each rank and each index, the last index up to it where that rank is reached; -1 if there is none."""
    table = {}
    for rank in Rank:
        latest, column = -1, []
        for index, cut in enumerate(cuts):
            latest = index if cut.rank >= rank else latest
            column.append(latest)
        table[rank] = column
    return table


def _frames_before(text: str, atoms: list[tuple[int, int]], language: str | None) -> list[float]:
    """Estimated frames up to each offset of `text`; an offset within an atom counts as its beginning."""
    cached = lru_cache(maxsize=4096)(_atom_frames)
    frames, total = [], 0.0
    for start, end in atoms:
        frames.extend([total] * (end - start))
        total += cached(text[start:end], language)
    return [*frames, total]


def _atom_frames(atom: str, language: str | None) -> float:
    if atom.startswith("[pause"):
        return estimated_frames(atom, language)
    return sum(frames_of(character, language) for character in normalize("NFC", atom))


def _cuts(text: str, atoms: list[tuple[int, int]], language: str | None) -> Iterator[Cut]:
    """One cut for each gap between neighbouring atoms that have something to say."""
    speaks = lru_cache(maxsize=4096)(something_to_say)
    gaps = _Gaps(text, language)
    said, bounds = None, []
    for start, end in atoms:
        if not speaks(text[start:end]):
            bounds.append(end)
            continue
        if said is not None:
            yield gaps.cut(said, start, bounds) if bounds else Cut(start, start, Rank.CLUSTER)
        said, bounds = end, []


class _Gaps:
    """Ranks the gaps of one text."""

    def __init__(self, text: str, language: str | None):
        self._text = text
        self._language = language
        self._lower_case_only = text == text.lower()
        self._enclosed = _enclosed(text)

    def cut(self, begin: int, finish: int, bounds: list[int]) -> Cut:
        """The best cut in the gap text[begin:finish]; `bounds` are the ends of the grapheme clusters in it."""
        gap = self._text[begin:finish]
        before = self._text[max(0, begin - _LOOK_AROUND) : begin]
        after = self._text[finish : finish + _LOOK_AROUND]
        rank, offset = self._best(gap, before, after)
        borders = [begin, *bounds]
        end = borders[bisect_left(borders, begin + offset)]
        blanks = _BLANKS.match(self._text, end, finish)
        start = borders[bisect_right(borders, blanks.end()) - 1]
        if rank == Rank.SENTENCE and self._is_enclosed(end):
            rank = Rank.CLAUSE
        return Cut(end, start, rank)

    def _best(self, gap: str, before: str, after: str) -> tuple[Rank, int]:
        newline = _NEWLINE.search(gap)
        if newline:
            wrapped = not gap.strip() and len(_NEWLINE.findall(gap.replace("\r\n", "\n"))) == 1 and after[0].islower()
            return Rank.CLAUSE if wrapped else Rank.SENTENCE, len(gap[: newline.start()].rstrip())
        best = max(self._stops(gap, before, after), key=lambda found: found[0], default=None)
        if best is not None:
            return best
        in_number = before[-1].isdigit() and (after[0].isdigit() or _HALF_OF_DAY.match(after)) and len(gap) <= 2
        if not in_number:
            clause = _CLAUSE.search(gap)
            if clause:
                return Rank.CLAUSE, _behind_closers(gap, clause.end(), _CLOSERS_OF_SPACED_SCRIPTS)
            blank = _BLANK.search(gap)
            if blank:
                end = blank.end() if blank[0] == "\u200b" else blank.start()
                stopless = _WITHOUT_STOPS.match(before[-1]) and _WITHOUT_STOPS.match(after) and blank[0] != "\u200b"
                return Rank.SENTENCE if stopless else Rank.WORD, end
        opener = _OPENERS.search(gap)
        return Rank.CLUSTER, opener.start() if opener else len(gap)

    def _stops(self, gap: str, before: str, after: str) -> Iterator[tuple[Rank, int]]:
        for stop in _STOP.finditer(gap):
            wide = any(character in _WIDE_STOPS for character in stop[0])
            end = _behind_closers(gap, stop.end(), _CLOSERS if wide else _CLOSERS_OF_SPACED_SCRIPTS)
            rank = self._rank(stop, gap, end, before, after)
            if rank is not None:
                yield rank, end

    def _rank(self, stop: regex.Match, gap: str, end: int, before: str, after: str) -> Rank | None:
        marks = stop[0].replace(" ", "")
        closed = end > stop.end()
        if marks[0] == ";" and not _GREEK.match(before[-1]):
            return None
        if any(mark in _WIDE_STOPS for mark in marks):
            if len(gap) == 1 and before[-1].isdigit() and after[0].isdigit():
                return None
            quoted = closed and end == len(gap) and _HIRAGANA.match(after)
            return Rank.CLAUSE if quoted else Rank.SENTENCE
        if not gap[end : end + 1].isspace():
            cjk_before, cjk_after = _CJK.match(before[-1]), _CJK.match(after)
            enough = (cjk_before and cjk_after) if marks == "." else (cjk_before or cjk_after)
            return Rank.SENTENCE if enough and end == len(gap) else None
        lower = after[0].islower()
        if "!" in marks or "?" in marks or "‽" in marks:
            return Rank.CLAUSE if lower and closed else Rank.SENTENCE
        if marks != ".":
            return Rank.CLAUSE if lower else Rank.SENTENCE
        if stop.start() == 0 and self._goes_on(before, after):
            return None
        return Rank.CLAUSE if lower and not self._lower_case_only else Rank.SENTENCE

    def _goes_on(self, before: str, after: str) -> bool:
        """Whether the dot behind `before` belongs to its last word: an abbreviation, initials, an ordinal."""
        found = _WORD_BEFORE.search(before)
        word = found[0] if found else ""
        following = _WORD_AFTER.match(after)
        next_word = following[0] if following else ""
        if word in abbreviations.NEVER_LAST:
            return True
        if word in abbreviations.BEFORE_A_NUMBER and _NUMBER_AFTER.match(after):
            return True
        if abbreviations.is_initials(word):
            return next_word not in abbreviations.SENTENCE_STARTERS
        if word.isdecimal() and len(word) <= 3:
            lead = before[: len(before) - len(word)].rstrip(" \t([")
            return (
                lead == ""
                or _NEWLINE.match(lead[-1]) is not None
                or (len(word) <= 2 and self._language in abbreviations.DOT_ORDINALS)
                or next_word in abbreviations.GERMAN_MONTHS
            )
        return False

    def _is_enclosed(self, offset: int) -> bool:
        index = bisect_left(self._enclosed, (offset,)) - 1
        return index >= 0 and offset <= self._enclosed[index][1]


def _behind_closers(gap: str, end: int, closers: frozenset[str]) -> int:
    while end < len(gap) and gap[end] in closers:
        end += 1
    # French sets a blank before its closing quote; where a letter follows, » opens a German quotation.
    if gap[end : end + 2] in (" »", "\u00a0»", "\u202f»") and end + 2 < len(gap):
        return end + 2
    return end


def _enclosed(text: str) -> list[tuple[int, int]]:
    """Offsets of the outermost quotes and brackets, opening and closing, that close soon and in the same line."""
    spans: list[tuple[int, int]] = []
    opened: list[tuple[str, int]] = []
    for match in _BRACKET_OR_NEWLINE.finditer(text):
        character, at = match[0], match.start()
        if character in "\n\r":
            opened.clear()
        elif opened and character == opened[-1][0]:
            start = opened.pop()[1]
            if at - start <= _LONGEST_ENCLOSED:
                while spans and spans[-1][0] > start:
                    spans.pop()
                spans.append((start, at))
        elif character == '"':
            opened.append(('"', at))
        elif character in _PAIRS:
            opened.append((_PAIRS[character], at))
    return spans


class SentenceReader:
    """Takes the complete sentences out of a text that comes in pieces.

    A sentence is complete once a whole word follows it: until then its stop may be part of a number, name or date.
    However small the pieces, all work is one walk over the text: of what has been looked at, only as much is looked at
    again as can matter to what is new.
    """

    def __init__(self, language: str | None):
        self._language = language
        self._text = ""
        self._seen = 0

    @property
    def waiting(self) -> int:
        """Characters of the sentence that is not complete."""
        return len(self._text)

    def write(self, text: str) -> str:
        """The sentences that are complete now, as one text; mostly none."""
        self._text += text
        begin = max(0, self._seen - _LONGEST_ENCLOSED - _LONGEST_MARK)
        unjudged = max(0, self._seen - _LONGEST_MARK) - begin
        window = _GROWING.sub("", self._text[begin:])
        atoms = [match.span() for match in _ATOM.finditer(window)]
        ends = [cut for cut in _cuts(window, atoms, self._language) if cut.rank == Rank.SENTENCE]
        self._seen = len(self._text)
        if not ends or ends[-1].start < unjudged:
            return ""
        complete = self._text[: begin + ends[-1].end]
        self._text = self._text[begin + ends[-1].start :]
        self._seen = len(self._text)
        return complete

    def flush(self) -> str:
        """What is left, complete or not."""
        rest, self._text, self._seen = self._text, "", 0
        return rest

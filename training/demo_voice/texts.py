"""What the corpus says: `sentences(count, seed)`, the same list for the same arguments.

Three sources are mixed: patterns filled with everyday words, sentences drawn from the trigram model that comes with
pocketsphinx, and lists of words. Each prefers words that are still owed: every one of the COMMONEST words 8 times,
the others up to COMMON 3 times, and the rest of the VOCABULARY once, for the sake of its spelling.
"""

import random
from collections import Counter
from itertools import accumulate

import regex
from pocketsphinx import Config, LogMath, NGramModel, get_model_path

from pipeline.normalise import normalise
from training.demo_voice.sentences import DEMO, HARVARD, NATURAL
from training.demo_voice.templates import SENTENCES, WORDS

COMMONEST, COMMON, VOCABULARY = 1_200, 5_000, 20_000
"""Ranks by frequency in the language model."""
LOG_BASE = 1.0001
CANDIDATES = 240
"""Words weighed against each other at each place of a drawn sentence."""
OWED = 0.5
"""Part of the places of a drawn sentence at which only words that are owed compete."""

_WORD = regex.compile(r"[\p{L}'-]+")
_PLAIN = regex.compile(r"[a-z]+(?:['-][a-z]+)*")
_RUDE = regex.compile(r"fuck|shit|cunt|nigg|fagg|slut|whore|\brap(?:e|ist)")
_ARTICLE = regex.compile(r"\b([Aa])(?= [aeiou])")
_SLOT = regex.compile(r"\{(\w+)\}")
_OPENINGS = "what why when where how who is are do does did can could will would have has"
_CONJUNCTIONS = "and but because which when if while although so or"
_LEADING = """
the a an of to and or but in on at for with from by my your his her its our their i i'm it's he's she's we're they're
you're i've is are was were be been as than that if because very this so not into about
"""
_MONTH_NAMES = "January February March April May June July August September October November December"
_QUESTIONS, _CLAUSES = frozenset(_OPENINGS.split()), frozenset(_CONJUNCTIONS.split())
_UNFINISHED = frozenset(_LEADING.split())
"""Words no sentence ends with."""
_MONTHS = _MONTH_NAMES.split()


def words_of(text: str) -> tuple[str, ...]:
    """Lower-case words, without punctuation: what two texts are compared by."""
    return tuple(_WORD.findall(text.lower()))


def sentences(count: int, seed: int = 1) -> list[str]:
    """`count` different texts, short and long, none of which is a sentence kept for evaluation."""
    rng = random.Random(seed)
    source = _Source(rng)
    held_out = {words_of(text) for text in (*HARVARD, *NATURAL, *DEMO)}
    texts: dict[tuple[str, ...], str] = {}
    while len(texts) < count:
        text = normalise(source.draw(), "English")
        words = words_of(text)
        if words and words not in held_out and words not in texts:
            texts[words] = text
            source.said.update(words)
    return list(texts.values())


def coverage(texts: list[str]) -> dict[str, float]:
    """Which part of each frequency band occurs as often as promised."""
    said = Counter(word for text in texts for word in words_of(text))
    ranked = _Language().ranked
    bands = (("commonest", 0, COMMONEST, 8), ("common", COMMONEST, COMMON, 3), ("vocabulary", COMMON, VOCABULARY, 1))
    return {
        name: sum(said[word] >= times for word in ranked[first:last]) / (last - first)
        for name, first, last, times in bands
    }


class _Language:
    """pocketsphinx's trigram model, and its words by falling frequency."""

    def __init__(self) -> None:
        self._model = NGramModel(Config(), LogMath(LOG_BASE), get_model_path("en-us/en-us.lm.bin"))
        unknown = self._model.prob(["zzzzqqqq"])
        with open(get_model_path("en-us/cmudict-en-us.dict"), encoding="utf-8") as dictionary:
            words = [line.split(maxsplit=1)[0] for line in dictionary]
        self._scores = {word: score for word in words if _is_plain(word) and (score := self.score(word)) != unknown}
        self.ranked = sorted(self._scores, key=lambda word: -self._scores[word])

    def score(self, word: str, *before: str) -> int:
        """Logarithm, to LOG_BASE, of the word's probability after `before`, the nearest word first."""
        return self._model.prob([word, *before])

    def flattened(self, word: str) -> float:
        """The square root of its frequency: rare words get their turn."""
        return LOG_BASE ** (self._scores[word] / 2)


class _Source:
    """Draws texts; `said` counts the words of those that were taken."""

    def __init__(self, rng: random.Random):
        self._rng = rng
        self._language = _Language()
        self.said: Counter[str] = Counter()
        ranked = self._language.ranked[:VOCABULARY]
        self._words, self._weights = ranked, list(accumulate(map(self._language.flattened, ranked)))
        self._owed = {word: self._times(rank) for rank, word in enumerate(ranked)}
        self._debts = list(ranked)

    def draw(self) -> str:
        """One text of a kind drawn at random, as it is written."""
        kind = self._rng.random()
        if kind < 0.3:
            return self._filled(self._rng.choice(SENTENCES))
        if kind < 0.9:
            first = self._spoken(self._rng.choice((3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)))
            return first if self._rng.random() < 0.9 else f"{first} {self._spoken(self._rng.randint(2, 4))}"
        if kind < 0.98:
            return _punctuated([self._owed_word() for _ in range(self._rng.randint(2, 7))], ", ", self._rng)
        return _punctuated([self._owed_word()], "", self._rng)

    @staticmethod
    def _times(rank: int) -> int:
        return 8 if rank < COMMONEST else 3 if rank < COMMON else 1

    def _owed_word(self) -> str:
        """A word that has not been said often enough; any word when all have."""
        while self._debts:
            index = self._rng.randrange(len(self._debts))
            word = self._debts[index]
            if self.said[word] < self._owed[word]:
                return word
            self._debts[index] = self._debts[-1]
            self._debts.pop()
        return self._rng.choices(self._words, cum_weights=self._weights)[0]

    def _filled(self, pattern: str) -> str:
        text = _SLOT.sub(lambda slot: self._slot(slot[1]), pattern)
        return _ARTICLE.sub(r"\1n", text[0].upper() + text[1:])

    def _slot(self, name: str) -> str:
        return _figures(name, self._rng) if name in _FIGURES else self._rng.choice(WORDS[name])

    def _spoken(self, length: int) -> str:
        """A sentence of the trigram model, each word chosen among some candidates."""
        words, before = [], ("<s>",)
        while len(words) < length or (words[-1] in _UNFINISHED and len(words) < length + 4):
            words.append(self._next_word(before))
            before = (words[-1], before[0])
        return _punctuated(words, " ", self._rng)

    def _next_word(self, before: tuple[str, ...]) -> str:
        if self._rng.random() < OWED:
            candidates = [self._owed_word() for _ in range(CANDIDATES)]
        else:
            candidates = self._rng.choices(self._words, cum_weights=self._weights, k=CANDIDATES)
        scores = [self._language.score(word, *before) for word in candidates]
        best = max(scores)
        return self._rng.choices(candidates, [LOG_BASE ** (score - best) for score in scores])[0]


def _is_plain(word: str) -> bool:
    return bool(_PLAIN.fullmatch(word)) and not _RUDE.search(word) and (len(word) > 1 or word in "ai")


def _punctuated(words: list[str], between: str, rng: random.Random) -> str:
    """A list or a sentence with capitals and marks; `between` joins the words."""
    if between == " ":
        words = [f"{word}," if _pauses(word, words, i, rng) else word for i, word in enumerate(words)]
    text = between.join("I" + word[1:] if regex.match(r"i\b", word) else word for word in words)
    asks = words[0].strip(",") in _QUESTIONS
    mark = "?" if asks and rng.random() < 0.7 else rng.choices((".", "!", "?", "", "..."), (80, 6, 4, 8, 2))[0]
    return text[0].upper() + text[1:] + mark


def _pauses(word: str, words: list[str], index: int, rng: random.Random) -> bool:
    """Whether a comma follows: before a clause, or now and then anywhere."""
    if not 2 <= index + 1 < len(words) - 1 or word in _UNFINISHED:
        return False
    return rng.random() < (0.5 if words[index + 1] in _CLAUSES else 0.03)


def _count(rng: random.Random) -> str:
    return str(rng.choice((rng.randint(0, 20), rng.randint(21, 99), rng.randint(100, 999), rng.randint(1000, 99999))))


def _date(rng: random.Random) -> str:
    return f"{rng.choice(_MONTHS)} {rng.randint(1, 28)}, {rng.randint(1900, 2040)}"


_FIGURES = {
    "count": _count,
    "year": lambda rng: str(rng.randint(1700, 2050)),
    "clock": lambda rng: f"{rng.randint(1, 12)}:{rng.choice((0, 5, 10, 15, 20, 25, 30, 40, 45, 50)):02}",
    "date": _date,
    "money": lambda rng: rng.choice((f"${rng.randint(1, 99)}", f"${rng.randint(1, 200)}.{rng.randint(1, 99):02}")),
    "ordinal": lambda rng: regex.sub(r"(?<!1)1th", "1st", f"{rng.randint(1, 31)}th"),
}


def _figures(name: str, rng: random.Random) -> str:
    return _FIGURES[name](rng)

"""Percent, units and euros in languages other than English: words beside the digits, which the model reads.

Only forms that need no declension are here, which leaves out the Slavic and many other languages.
"""

import regex

_PERCENT = {
    "German": "{} Prozent", "French": "{} pour cent", "Spanish": "{} por ciento", "Italian": "{} per cento",
    "Portuguese": "{} por cento", "Dutch": "{} procent", "Swedish": "{} procent", "Danish": "{} procent",
    "Hungarian": "{} százalék", "Turkish": "yüzde {}", "Vietnamese": "{} phần trăm", "Chinese": "百分之{}",
    "Japanese": "{}パーセント", "Korean": "{}퍼센트",
}  # fmt: skip
_LANGUAGES = ("German", "French", "Spanish", "Italian", "Portuguese", "Dutch")
_UNITS = {
    "km": ("Kilometer", "kilomètre|s", "kilómetro|s", "chilometr|o|i", "quilômetro|s", "kilometer"),
    "m": ("Meter", "mètre|s", "metro|s", "metr|o|i", "metro|s", "meter"),
    "cm": ("Zentimeter", "centimètre|s", "centímetro|s", "centimetr|o|i", "centímetro|s", "centimeter"),
    "mm": ("Millimeter", "millimètre|s", "milímetro|s", "millimetr|o|i", "milímetro|s", "millimeter"),
    "kg": ("Kilogramm", "kilogramme|s", "kilogramo|s", "chilogramm|o|i", "quilograma|s", "kilogram"),
    "°C": (
        "Grad Celsius", "degré|s Celsius", "grado|s Celsius", "grad|o|i Celsius", "grau|s Celsius", "graden Celsius",
    ),
    "€": ("Euro", "euro|s", "euro|s", "euro", "euro|s", "euro"),
}  # fmt: skip
"""One unit a row, in the order of _LANGUAGES: "stem|plural's ending" or "stem|singular's|plural's", what follows."""
_WITH_CENTS = {"German": " ", "French": " ", "Dutch": " ", "Spanish": " con ", "Italian": " e ", "Portuguese": " e "}
_SINGULAR_BELOW_TWO = frozenset(["French", "Portuguese"])

_NUMBER = r"(?<![\w.,:/#€$£-])(?P<number>\d++(?:[.,]\d++)*+)"
_PERCENT_SIGN = regex.compile(rf"{_NUMBER} ?%(?!\w)", regex.ASCII)
_MEASURE = regex.compile(rf"{_NUMBER}(?: ?(?P<unit>km|cm|mm|kg|°C|€)| (?P<spaced>m))(?![\w²³/^%])")
_EURO_BEFORE = regex.compile(r"(?<![\w€])(?P<unit>€) ?(?P<number>\d++(?:[.,]\d++)*+)(?!\w)")
_CENTS = regex.compile(r"([1-9][\d.]*+),(\d\d)")


def said_in(language: str | None, text: str) -> str:
    """`text` with percent signs, common units and euros in words, if the language has them here."""
    if language in _PERCENT:
        text = _PERCENT_SIGN.sub(lambda match: _PERCENT[language].format(match["number"]), text)
    if language in _LANGUAGES:
        text = _EURO_BEFORE.sub(lambda match: _measure(match, "€", language), text)
        text = _MEASURE.sub(lambda match: _measure(match, match["unit"] or match["spaced"], language), text)
    return text


def _measure(match: regex.Match, unit: str, language: str) -> str:
    number = match["number"]
    word = _form(_UNITS[unit][_LANGUAGES.index(language)], _is_singular(number, language))
    with_cents = _CENTS.fullmatch(number) if unit == "€" else None
    if with_cents and int(with_cents[2]):
        whole = with_cents[1]
        word = _form(_UNITS[unit][_LANGUAGES.index(language)], _is_singular(whole, language))
        return f"{whole} {word}{_WITH_CENTS[language]}{int(with_cents[2])}"
    return f"{number} {word}"


def _form(entry: str, singular: bool) -> str:
    stem, _, endings = entry.partition("|")
    if not endings:
        return entry
    endings, _, rest = endings.partition(" ")
    one, _, many = endings.rpartition("|")
    return f"{stem}{one if singular else many}" + (f" {rest}" if rest else "")


def _is_singular(number: str, language: str) -> bool:
    if language in _SINGULAR_BELOW_TWO:
        return number in ("0", "1") or number.startswith(("0,", "1,"))
    return number == "1"

"""English amounts, measures, dates and times in words, where their reading is certain.

A bare number stays in digits, which the model reads: it may be a year, a code, a room, a telephone number.
"""

from collections.abc import Iterable
from datetime import date

import regex

from pipeline.numbers_en import cardinal, decimal, ordinal, two_digits, year

_WORD = regex.compile(r"[\p{L}']+")
_ENGLISH = """
the and you that with this have has your what from they their she his which would there were about it's i'm don't please
is are
"""
_OTHERS = """
le la les des et une est der die das und ist ein el los las que en il che di een het de van em um na se ve bir
dan yang ang ng och att som ja ei
"""
_ENGLISH_WORDS, _OTHER_WORDS = frozenset(_ENGLISH.split()), frozenset(_OTHERS.split())


def is_english(text: str) -> bool:
    """Whether a text of unnamed language is surely English: no foreign letter, and its little words are English."""
    words = _WORD.findall(text.lower())
    if not words or any(not word.isascii() for word in words):
        return False
    ours = sum(word in _ENGLISH_WORDS for word in words)
    return ours * 25 >= len(words) and ours > 2 * sum(word in _OTHER_WORDS for word in words)


_NUMBER = r"(?:\d{1,3}(?:,\d{3})++|\d++)(?:\.\d++)?+"
_RANGE = rf"(?P<amount>{_NUMBER})(?: ?[-–] ?(?P<upto>{_NUMBER}))?"
_START = r"(?<![\w$£€¥₹.,:/#@-])(?P<minus>(?<!\w)-)?"

_MONTHS = "January February March April May June July August September October November December"
_CURRENCIES = {
    "$": ("dollar", "dollars", "cent", "cents"),
    "US$": ("US dollar", "US dollars", "cent", "cents"),
    "£": ("pound", "pounds", "penny", "pence"),
    "€": ("euro", "euros", "cent", "cents"),
    "¥": ("yen", "yen", "", ""),
    "₹": ("rupee", "rupees", "paisa", "paise"),
}
_CODES = {"USD": "$", "EUR": "€", "GBP": "£", "JPY": "¥", "INR": "₹", "€": "€"}
_SCALES = {"k": "thousand", "m": "million", "b": "billion", "bn": "billion", "t": "trillion", "tn": "trillion"}
_UNITS = {
    "km": ("kilometer", "kilometers"),
    "m": ("meter", "meters"),
    "cm": ("centimeter", "centimeters"),
    "mm": ("millimeter", "millimeters"),
    "mi": ("mile", "miles"),
    "ft": ("foot", "feet"),
    "yd": ("yard", "yards"),
    "kg": ("kilogram", "kilograms"),
    "g": ("gram", "grams"),
    "mg": ("milligram", "milligrams"),
    "lb": ("pound", "pounds"),
    "lbs": ("pound", "pounds"),
    "oz": ("ounce", "ounces"),
    "L": ("liter", "liters"),
    "l": ("liter", "liters"),
    "ml": ("milliliter", "milliliters"),
    "mL": ("milliliter", "milliliters"),
    "km²": ("square kilometer", "square kilometers"),
    "m²": ("square meter", "square meters"),
    "m³": ("cubic meter", "cubic meters"),
    "km/h": ("kilometer per hour", "kilometers per hour"),
    "kph": ("kilometer per hour", "kilometers per hour"),
    "m/s": ("meter per second", "meters per second"),
    "mph": ("mile per hour", "miles per hour"),
    "°C": ("degree Celsius", "degrees Celsius"),
    "℃": ("degree Celsius", "degrees Celsius"),
    "°F": ("degree Fahrenheit", "degrees Fahrenheit"),
    "℉": ("degree Fahrenheit", "degrees Fahrenheit"),
    "°": ("degree", "degrees"),
    "%": ("percent", "percent"),
    "Hz": ("hertz", "hertz"),
    "kHz": ("kilohertz", "kilohertz"),
    "MHz": ("megahertz", "megahertz"),
    "GHz": ("gigahertz", "gigahertz"),
    "W": ("watt", "watts"),
    "kW": ("kilowatt", "kilowatts"),
    "MW": ("megawatt", "megawatts"),
    "kWh": ("kilowatt hour", "kilowatt hours"),
    "V": ("volt", "volts"),
    "kB": ("kilobyte", "kilobytes"),
    "KB": ("kilobyte", "kilobytes"),
    "MB": ("megabyte", "megabytes"),
    "GB": ("gigabyte", "gigabytes"),
    "TB": ("terabyte", "terabytes"),
    "Mbps": ("megabit per second", "megabits per second"),
    "Gbps": ("gigabit per second", "gigabits per second"),
    "dB": ("decibel", "decibels"),
    "ms": ("millisecond", "milliseconds"),
    "s": ("second", "seconds"),
    "min": ("minute", "minutes"),
    "hrs": ("hour", "hours"),
    "hr": ("hour", "hours"),
    "h": ("hour", "hours"),
}
_ONLY_SPACED = frozenset(["m", "g", "l", "L", "s", "h", "W", "V"])
"""Letters that mean something else when they touch the number: 5m may be five million, 5G is a network."""
_FRACTIONS = {
    "1/2": "one half", "1/3": "one third", "2/3": "two thirds", "1/4": "one quarter", "3/4": "three quarters",
    "1/8": "one eighth", "3/8": "three eighths", "5/8": "five eighths", "7/8": "seven eighths",
}  # fmt: skip
_FRACTION_SIGNS = {
    "½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅛": "1/8", "⅜": "3/8", "⅝": "5/8", "⅞": "7/8",
}  # fmt: skip
_OPERATORS = {"+": "plus", "=": "equals", "×": "times", "÷": "divided by", "≈": "is about", "≠": "is not", "&": "and"}
_PREFIXES = {"~": "about", "≈": "about", "±": "plus or minus"}


def _any_of(spellings: Iterable[str]) -> str:
    return "|".join(regex.escape(spelling) for spelling in sorted(spellings, key=len, reverse=True))


_MONEY = regex.compile(
    rf"{_START}(?P<sign>{_any_of(_CURRENCIES)}) ?(?P<amount>{_NUMBER})(?:[-–](?P=sign)?(?P<upto>{_NUMBER}))?"
    r"(?:(?P<scale>(?:k|K|[Mm]|[Bb]n?|[Tt]n?)| (?:thousand|million|billion|trillion)))?(?![\w%]|[.,]\d|[-–]\w)"
)
_MONEY_BEHIND = regex.compile(rf"{_START}{_RANGE} ?(?P<code>{_any_of(_CODES)})(?![\w%])")
_PER = regex.compile(
    r"(?<=dollars?|pounds?|euros?|cents?|yen|rupees?)/(?=(?:month|year|week|day|hour|person|user|night)\b)"
)
_MEASURE = regex.compile(
    rf"{_START}{_RANGE}(?:(?P<tight>{_any_of(_UNITS.keys() - _ONLY_SPACED)})| (?P<spaced>{_any_of(_UNITS)}))"
    r"(?![\w²³^%]|/\w|-\p{L})"
)
_ARTICLE = regex.compile(r"\b[Aa]n? $")
_ISO_DATE = regex.compile(r"(?<![\w/.-])(\d{4})-(\d{2})-(\d{2})(?![\w/]|[-.]\w)")
_SLASH_DATE = regex.compile(r"(?<![\w/.-])(\d{1,2})/(\d{1,2})/(\d{4})(?![\w/]|[-.]\w)")
_CLOCK_RANGE = regex.compile(r"(?<=\d:\d\d) ?[-–] ?(?=\d{1,2}:\d\d)")
_CLOCK = regex.compile(
    r"(?<![\w:.,/-])(?P<hour>\d{1,2})(?=:| ?[AaPp])(?::(?P<minute>[0-5]\d))?"
    r"(?P<half> ?(?:[AP]M|[ap]m|[AaPp]\.[Mm])\b)?(?![\w:]|[.,]\d|[-/]\w)"
)
_ORDINAL = regex.compile(r"(?<![\w.,/-])(\d{1,3}(?:,\d{3})++|\d{1,6})(st|nd|rd|th)\b(?!-\d)")
_MIXED = regex.compile(rf"(?<![\w.,/-])(?:(?P<whole>\d{{1,3}}) )?(?P<fraction>{_any_of(_FRACTIONS)})(?![\w/%]|[.,-]\d)")
_FRACTION_SIGN = regex.compile(rf"(?<![\w.,/-])(?P<whole>\d{{1,3}})? ?(?P<sign>[{''.join(_FRACTION_SIGNS)}])(?!\w)")
_PLAIN_RANGE = regex.compile(r"(?<![\w.,:/$£€¥#+()-])(\d{1,4})([-–])(\d{1,4})(?![\w/:%)–-]|[.,]\d)")
_THOUSANDS = r"\d{1,3}(?:,\d{3})++(?:\.\d++)?+"
_GROUPED = regex.compile(rf"(?<![\w.,$£€¥₹#@-])({_THOUSANDS})(?:[-–]({_THOUSANDS}))?(?!\w|[.,]\d|[-/:]\d)")
_NUMBER_SIGN = regex.compile(r"(?<![\w&/#])(?:#|№ ?|No\. ?)(?=\d{1,6}\b(?![-/]))")
_OPERATOR = regex.compile(rf"(?<=[\w)\]%]) ([{regex.escape(''.join(_OPERATORS))}]) (?=[\w(\[-])|(?<=\d)([+=×÷])(?=\d)")
_PREFIX = regex.compile(rf"(?<![\w~])([{''.join(_PREFIXES)}]) ?(?=\d)")


def said_in_english(text: str) -> str:
    """`text` with amounts, measures, dates, times, ordinals, fractions, ranges and signs between numbers in words."""
    text = _PREFIX.sub(lambda match: f"{_PREFIXES[match[1]]} ", text)
    text = _NUMBER_SIGN.sub("number ", text)
    text = _ISO_DATE.sub(lambda match: _date(match, match[1], match[2], match[3]), text)
    text = _SLASH_DATE.sub(_slash_date, text)
    text = _PER.sub(" per ", _MONEY_BEHIND.sub(_money_behind, _MONEY.sub(_money, text)))
    text = _MEASURE.sub(_measure, text)
    text = _CLOCK.sub(_clock, _CLOCK_RANGE.sub(" to ", text))
    text = _ORDINAL.sub(_ordinal, text)
    text = _FRACTION_SIGN.sub(_fraction_sign, _MIXED.sub(_mixed, text))
    text = _PLAIN_RANGE.sub(_plain_range, text)
    text = _GROUPED.sub(lambda match: _span(*match.groups()) or match[0], text)
    return _OPERATOR.sub(lambda match: f" {_OPERATORS[match[1] or match[2]]} ", text)


def _money(match: regex.Match) -> str:
    return _amount_of_money(match, match["sign"], match["scale"] or "")


def _money_behind(match: regex.Match) -> str:
    return _amount_of_money(match, _CODES[match["code"]], "")


def _amount_of_money(match: regex.Match, sign: str, scale: str) -> str:
    one, many, cent, cents = _CURRENCIES[sign]
    scale = scale.strip()
    scale = _SCALES.get(scale.lower(), scale)
    amount, upto = match["amount"], match["upto"]
    whole, _, fraction = amount.replace(",", "").partition(".")
    if cent and len(fraction) == 2 and not scale and not upto and len(whole) < 16:
        if _is_singular(match):
            many, cents = one, cent
        words = _whole_and_cents(int(whole), int(fraction), (one, many, cent, cents))
    else:
        words = _span(amount, upto)
        if words is None:
            return match[0]
        words = f"{words} {scale}" if scale else words
        words = f"{words} {one if _is_singular(match) else many}"
    return f"minus {words}" if match["minus"] else words


def _whole_and_cents(whole: int, fraction: int, names: tuple[str, str, str, str]) -> str:
    one, many, cent, cents = names
    small = f"{cardinal(fraction)} {cent if fraction == 1 else cents}"
    if whole == 0 and fraction:
        return small
    large = f"{cardinal(whole)} {one if whole == 1 else many}"
    return f"{large} and {small}" if fraction else large


def _is_singular(match: regex.Match) -> bool:
    """After an article the unit is part of an adjective: "a 5 km run" is "a five kilometer run"."""
    before = match.string[max(0, match.start() - 4) : match.start()]
    scaled = match.groupdict().get("scale")
    return _ARTICLE.search(before) is not None or (match["amount"] == "1" and not match["upto"] and not scaled)


def _span(amount: str, upto: str | None) -> str | None:
    """Words for a number, or for a range of two; None if a number is better left in digits."""
    words = decimal(amount)
    if words is None or upto is None:
        return words
    end = decimal(upto)
    return None if end is None else f"{words} to {end}"


def _measure(match: regex.Match) -> str:
    words = _span(match["amount"], match["upto"])
    if words is None:
        return match[0]
    one, many = _UNITS[match["tight"] or match["spaced"]]
    words = f"{words} {one if _is_singular(match) else many}"
    return f"minus {words}" if match["minus"] else words


def _date(match: regex.Match, in_year: str, month: str, day: str) -> str:
    try:
        when = date(int(in_year), int(month), int(day))
    except ValueError:
        return match[0]  # No such day: some other code.
    return f"{_MONTHS.split()[when.month - 1]} {ordinal(when.day)}, {year(when.year)}"


def _slash_date(match: regex.Match) -> str:
    first, second = int(match[1]), int(match[2])
    if first == second or first <= 12 < second:
        return _date(match, match[3], match[1], match[2])
    return _date(match, match[3], match[2], match[1]) if second <= 12 < first else match[0]


def _clock(match: regex.Match) -> str:
    hour, minute, half = int(match["hour"]), match["minute"], match["half"]
    if minute is None and half is None:
        return match[0]
    if hour == 0 or hour > (12 if half else 24):
        return match[0]
    if half:
        words = cardinal(hour) if minute in (None, "00") else f"{cardinal(hour)} {two_digits(int(minute))}"
        return f"{words} {half.strip()}"
    if minute == "00":
        return f"{cardinal(hour)} o'clock" if hour <= 12 else f"{cardinal(hour)} hundred"
    return f"{cardinal(hour)} {two_digits(int(minute))}"


def _ordinal(match: regex.Match) -> str:
    number = int(match[1].replace(",", ""))
    right = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return ordinal(number) if match[2] == right and match[1][0] != "0" else match[0]


def _mixed(match: regex.Match) -> str:
    return _with_whole(match["whole"], _FRACTIONS[match["fraction"]])


def _fraction_sign(match: regex.Match) -> str:
    return _with_whole(match["whole"], _FRACTIONS[_FRACTION_SIGNS[match["sign"]]])


def _with_whole(whole: str | None, fraction: str) -> str:
    if whole is None:
        return fraction
    part = "a " + fraction.removeprefix("one ") if fraction.startswith("one ") else fraction
    return f"{cardinal(int(whole))} and {'an eighth' if part == 'a eighth' else part}"


def _plain_range(match: regex.Match) -> str:
    first, dash, last = match.groups()
    years = len(first) == len(last) == 4
    small = max(len(first), len(last)) <= 3 and first[0] != "0"
    certain = int(first) < int(last) and (years or small)
    return f"{first} to {last}" if dash == "–" or certain else match[0]

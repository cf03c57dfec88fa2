"""English names of numbers, as Americans say them: 342 is "three hundred forty-two"."""

_SMALL_NAMES = """
zero one two three four five six seven eight nine
ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen
"""
_TENS_NAMES = "- - twenty thirty forty fifty sixty seventy eighty ninety"
_SMALL, _TENS = _SMALL_NAMES.split(), _TENS_NAMES.split()
_SCALES = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"), (10**3, "thousand"), (10**2, "hundred"))
_IRREGULAR_ORDINALS = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth",
    "twelve": "twelfth",
}  # fmt: skip
LIMIT = 10**15
"""Numbers from here on have no name that a listener would follow."""


def cardinal(number: int) -> str:
    """Name of a number from 0 to LIMIT - 1."""
    for scale, name in _SCALES:
        if number >= scale:
            count, rest = divmod(number, scale)
            return f"{cardinal(count)} {name}" + (f" {cardinal(rest)}" if rest else "")
    if number < 20:
        return _SMALL[number]
    tens, ones = divmod(number, 10)
    return _TENS[tens] + (f"-{_SMALL[ones]}" if ones else "")


def ordinal(number: int) -> str:
    """Name of a place from 0 to LIMIT - 1: 21 is "twenty-first"."""
    head, mark, last = cardinal(number).rpartition("-" if number % 100 > 20 and number % 10 else " ")
    if last in _IRREGULAR_ORDINALS:
        last = _IRREGULAR_ORDINALS[last]
    else:
        last = f"{last[:-1]}ieth" if last.endswith("y") else f"{last}th"
    return head + mark + last


def year(number: int) -> str:
    """Name of a year from 1 to 9999: 1905 is "nineteen oh five", 2024 "twenty twenty-four"."""
    century, rest = divmod(number, 100)
    if century < 10 or (century % 10 == 0 and rest < 10):
        return cardinal(number)
    if rest == 0:
        return f"{cardinal(century)} hundred"
    return f"{cardinal(century)} {two_digits(rest)}"


def two_digits(number: int) -> str:
    """Minutes, or the end of a year, from 1 to 99: 5 is "oh five"."""
    return f"oh {_SMALL[number]}" if number < 10 else cardinal(number)


def decimal(written: str) -> str | None:
    """Name of a number written like 1,234.50; None if it is LIMIT or more, or a code with zeros in front."""
    whole, point, fraction = written.replace(",", "").partition(".")
    # Counting digits first: a number of a hundred thousand digits is no number, and slow to convert.
    if len(whole) > len(str(LIMIT - 1)) or (len(whole) > 1 and whole[0] == "0"):
        return None
    name = cardinal(int(whole))
    return f"{name} point {' '.join(_SMALL[int(digit)] for digit in fraction)}" if point else name

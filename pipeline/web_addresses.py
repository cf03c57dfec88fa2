"""Web and mail addresses as they are said."""

from collections.abc import Callable

import regex

_ENDINGS = "com|org|net|edu|gov|io|dev|ai|app|co|info|uk|us|de|fr|es|it|nl|eu|ca|au|jp|cn|in|ly|me|tv"
_PATH = r"[A-Za-z0-9\-._~/?#@!$&'()*+,;=%:\[\]]"
_URL = regex.compile(rf"(?<![A-Za-z0-9@])(?:(?:https?|ftp)://|www\.(?=[a-z0-9])){_PATH}++", regex.IGNORECASE)
_BARE = regex.compile(
    rf"(?<![\w@./-])(?:[a-z0-9][a-z0-9-]*+\.){{1,8}}(?:{_ENDINGS})(?:/{_PATH}*+)?(?![\w@-]|\.\w)",
)
_MAIL = regex.compile(r"(?<![\w.%+@-])[A-Za-z0-9._%+-]++@(?:[A-Za-z0-9-]++\.){1,8}[A-Za-z]{2,}+(?![\w@-])")
_PARTS = regex.compile(
    r"(?:(?:https?|ftp)://)?(?:[^/@]*+@)?(?:www\.)?([^/:?#]*+)(?::\d++)?([^?#]*+).*+",
    regex.IGNORECASE | regex.DOTALL,
)
_TRAILING = ".,;:!?'\"*_)]"
_SAYABLE_PATH = regex.compile(r"[A-Za-z0-9/._-]{1,40}")
_SIGNS = {".": "dot", "/": "slash", "-": "dash", "_": "underscore", "@": "at", "+": "plus", "%": "percent"}
_SIGN = regex.compile("[" + regex.escape("".join(_SIGNS)) + "]")


def domains_only(text: str) -> str:
    """Each http(s) or www address reduced to its domain, which every language can read out."""
    return _URL.sub(lambda match: _with_trailing(match[0], lambda url: _parts(url)[0] or url), text)


def said_in_english(text: str) -> str:
    """Addresses in words, "example dot com slash docs"; queries and paths that nobody would follow are left out."""
    text = _MAIL.sub(lambda match: _in_words(match[0]), text)
    text = _URL.sub(lambda match: _with_trailing(match[0], _said), text)
    return _BARE.sub(lambda match: _with_trailing(match[0], _said), text)


def _with_trailing(url: str, said: Callable[[str], str]) -> str:
    """The sentence's own punctuation behind an address stays; a closing bracket does if none opened in the address."""
    end = len(url.rstrip(_TRAILING))
    if "(" in url[:end] and url[end : end + 1] == ")":
        end += 1
    return said(url[:end]) + url[end:]


def _parts(url: str) -> tuple[str, str]:
    host, path = _PARTS.fullmatch(url).groups()
    return host, path.rstrip("/")


def _said(url: str) -> str:
    host, path = _parts(url)
    if not host:
        return url
    return _in_words(host + path if _SAYABLE_PATH.fullmatch(path) else host)


def _in_words(address: str) -> str:
    return " ".join(_SIGN.sub(lambda match: f" {_SIGNS[match[0]]} ", address).split())

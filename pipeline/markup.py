"""What Markdown and HTML mean to the ear: their text, without signs and addresses.

Not a Markdown parser: CommonMark reads indented prose as code, joins lines and eats what only looks like markup, while
prose, marks in brackets and identifiers have to come through as they are. So only unmistakable markup is taken out.
Tables, which no listener can see, become their cells with commas.
"""

import html

import regex

HELD = "\ue000"
"""Stands for a mark that nothing may change or drop."""

_ENTITY = regex.compile(r"&(?:#\d{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_UNSEEN = regex.compile(r"<!--|-->|<(?:script|style)\b[^<>]*+>|</(?:script|style)>", regex.IGNORECASE)
_NEXT_CELL = regex.compile(r"</t[dh]>\s*+<t[dh]\b[^<>\ue000]*+>", regex.IGNORECASE)
_BLOCK = (
    "address|article|aside|blockquote|body|br|dd|div|dl|dt|figcaption|figure|footer|form|h[1-6]|head|header|hr|html|li"
    "|main|nav|ol|p|pre|section|table|tbody|td|tfoot|th|thead|title|tr|ul"
)
_INLINE = (
    "a|abbr|b|bdi|bdo|big|button|center|cite|code|del|details|dfn|em|font|i|iframe|img|input|ins|kbd|label|link|mark|meta"
    "|picture|q|s|samp|small|source|span|strike|strong|sub|summary|sup|svg|time|tt|u|var|video|audio|wbr"
)
_BLOCK_TAG = regex.compile(rf"</?(?:{_BLOCK})(?:\s[^<>\ue000]*+)?/?>", regex.IGNORECASE)
_INLINE_TAG = regex.compile(rf"</?(?:{_INLINE})(?:\s[^<>\ue000]*+)?/?>", regex.IGNORECASE)

_FENCE = regex.compile(r"(?:```+|~~~+)[^`\ue000]*+")
_LINE_PREFIX = regex.compile(r"(?:(?:>++(?:[ \t]++|$)|[-*+•‣◦▪●○][ \t]++|#{1,6}[ \t]++)(?:\[[ xX]\][ \t]++)?)*+")

_ADDRESS = (
    r"\((?=[^()\s]*?[/.#:])"
    r"[^()\s\ue000]*+(?:\([^()\s\ue000]*+\)[^()\s\ue000]*+)*+(?:\s\"[^\"\n\ue000]*+\")?\)"
)
_INLINE_MARKUP = [
    (regex.compile(pattern), replacement)
    for pattern, replacement in (
        (r"!\[([^\[\]\n]*+)\]" + _ADDRESS, r"\1"),
        (r"(?<!!)\[([^\[\]\n]*+)\]" + _ADDRESS, r"\1"),
        (r"<((?:https?://|mailto:)[^\s<>\ue000]*+)>", r"\1"),
        (r"\[\^[^\[\]\s]{1,40}\]:?", ""),
        (r"(?<!`)`++([^`\n]++)`++", r"\1"),
        (r"(?<!\d)\*{2,3}(?=[^\s*])([^*\n]++)(?<=\S)\*{2,3}", r"\1"),
        (r"(?<![A-Za-z0-9*\\])\*(?=[^\s*])([^*\n]++)(?<=\S)\*(?![A-Za-z0-9*])", r"\1"),
        (r"(?<![\w\\])_{1,3}(?=[^\s_])([^_\n]++)(?<=\S)_{1,3}(?!\w)", r"\1"),
        (r"~~(?=\S)([^~\n]++)(?<=\S)~~", r"\1"),
        (r"\\(?=[*_`~#\[\]()>|$!+-])", ""),
    )
]


def without_markup(text: str) -> str:
    """`text` without Markdown and HTML; line breaks between blocks stay or come in."""
    text = _ENTITY.sub(lambda match: html.unescape(match[0]), text)
    text = _without_tags(text)
    text = "\n".join(_without_line_markup(line) for line in text.split("\n"))
    for pattern, replacement in _INLINE_MARKUP:
        text = pattern.sub(replacement, text)
    return text


def _without_tags(text: str) -> str:
    text = _without_unseen(text)
    text = _NEXT_CELL.sub(", ", text)
    return _INLINE_TAG.sub("", _BLOCK_TAG.sub("\n", text))


def _without_unseen(text: str) -> str:
    """Drops comments, scripts and styles that are closed; what is left open stays."""
    kept, begin, opening = [], 0, None
    for match in _UNSEEN.finditer(text):
        token = match[0].lower()
        if opening is None and token not in ("-->", "</script>", "</style>"):
            opening = match
        elif opening is not None and token == _closing(opening[0]):
            if HELD not in text[opening.start() : match.end()]:
                kept.append(text[begin : opening.start()])
                begin = match.end()
            opening = None
    return "".join([*kept, text[begin:]])


def _closing(opening: str) -> str:
    if opening == "<!--":
        return "-->"
    return "</script>" if opening[1:3].lower() == "sc" else "</style>"


def _without_line_markup(line: str) -> str:
    line = line.strip()
    if _is_rule(line) or _FENCE.fullmatch(line):
        return ""
    if len(line) > 2 and line[0] == line[-1] == "|":
        return ", ".join(cell.strip() for cell in line.split("|") if cell.strip())
    prefix = _LINE_PREFIX.match(line)
    body = line[prefix.end() :]
    closed = body.rstrip("#")
    return closed.rstrip() if "#" in prefix[0] and closed.endswith(" ") else body


def _is_rule(line: str) -> bool:
    """A line that is drawn rather than read: under a heading, between sections, between rows of a table."""
    signs = set(line) - {" ", "\t"}
    if len(signs) == 1 and signs <= set("-*_=") and len(line) >= 3:
        return True
    return {"|", "-"} <= signs <= {"|", "-", ":", "+"}

"""From the bytes of a request body to a JSON object, or a clear error, whatever the bytes are."""

import json
from typing import Any

from deployments.http_errors import bad_request, body_too_large, shown

_LONGEST_INTEGER = 400
"""Digits that count; no field comes near, and converting many more takes long or is refused by Python."""


def parse_object(raw: bytes, max_bytes: int) -> dict[str, Any]:
    """The object that `raw` holds.

    `NaN`, `Infinity` and numbers beyond float64 come out as floats that are not finite, so that their field's
    own check can refuse them by name. A name that occurs twice in one object is refused, since readers differ
    in which one counts. Raises ApiError: 413 over `max_bytes`, 400 for anything but one JSON object in UTF-8.
    """
    if len(raw) > max_bytes:
        raise body_too_large(max_bytes)
    try:
        value = json.loads(raw.decode("utf-8-sig"), object_pairs_hook=_unique, parse_int=_integer)
    except UnicodeDecodeError:
        raise bad_request("the body is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise bad_request(
            f"the body is not valid JSON: {error.msg} at line {error.lineno} column {error.colno}"
        ) from None
    except RecursionError:
        raise bad_request("the body is nested too deeply") from None
    if not isinstance(value, dict):
        raise bad_request(f"the body must be a JSON object, not {shown(value)}")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise bad_request(f"field {shown(name)} occurs twice", param=name)
        fields[name] = value
    return fields


def _integer(digits: str) -> int:
    return int(digits[:_LONGEST_INTEGER])

"""Text to token ids, such that no text, whatever it says, becomes a control token."""

import json
from pathlib import Path

from tokenizers import Tokenizer as FastTokenizer

from pipeline.config import ModelConfig
from pipeline.errors import CheckpointError, InvalidRequest


class Tokenizer:
    """The checkpoint's tokenizer without its control tokens: `<|im_end|>` in a text is text like any other.

    The prompt places control ids itself, so nothing is lost. Safe to share between threads.
    """

    def __init__(self, tokenizer: FastTokenizer):
        self._tokenizer = tokenizer

    @classmethod
    def load(cls, directory: Path | str, config: ModelConfig) -> "Tokenizer":
        """Reads `DIR/tokenizer.json`; raises CheckpointError when it is missing, damaged or no BPE."""
        path = Path(directory) / "tokenizer.json"
        raw = _read(path)
        try:
            _forget_control_tokens(raw, config.tokens.ids)
            return cls(FastTokenizer.from_str(json.dumps(raw)))
        except CheckpointError:
            raise
        except Exception as error:  # the tokenizers library raises nothing narrower
            raise CheckpointError(f"{path} is not a usable tokenizer: {error}") from error

    def encode(self, text: str) -> list[int]:
        """Ids of `text` alone, nothing added. Raises InvalidRequest for text that is not Unicode."""
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidRequest(
                f"the text holds half a character (a lone surrogate) at position {error.start}", param="input"
            ) from None
        return self._tokenizer.encode(text, add_special_tokens=False).ids


def _read(path: Path) -> dict:
    try:
        raw = json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise CheckpointError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(raw, dict):
        raise CheckpointError(f"{path} does not hold a JSON object")
    return raw


def _forget_control_tokens(raw: dict, control_ids: frozenset[int]) -> None:
    """Edits a parsed tokenizer.json so that control ids are out of reach and equal text gives equal ids."""
    added = raw.get("added_tokens") or []
    forgotten = control_ids | {token["id"] for token in added if token["special"]}
    kept = [token for token in added if token["id"] not in forgotten]
    raw["added_tokens"] = kept
    raw["truncation"] = raw["padding"] = None
    if raw["model"]["type"] != "BPE":
        raise CheckpointError(f"tokenizer of type {raw['model']['type']!r} is not supported, BPE is")
    _forget_bpe_entries(raw["model"], forgotten)
    # Added tokens outside the vocabulary would be numbered anew, from the first id that was forgotten.
    raw["model"]["vocab"].update({token["content"]: token["id"] for token in kept})


def _forget_bpe_entries(model: dict, forgotten: frozenset[int]) -> None:
    """Some files repeat control tokens in the vocabulary, where merges or the unknown token reach them."""
    removed = {token for token, token_id in model["vocab"].items() if token_id in forgotten}
    model["vocab"] = {token: i for token, i in model["vocab"].items() if token not in removed}
    model["merges"] = [merge for merge in model["merges"] if removed.isdisjoint(_pieces(merge))]
    model["dropout"] = None
    if model.get("unk_token") in removed:
        model["unk_token"] = None


def _pieces(merge: str | list[str]) -> tuple[str, str, str]:
    """The two sides of a merge and its result; files of either age write `"a b"` or `["a", "b"]`."""
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right, left + right

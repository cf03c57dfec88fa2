"""The tokenizer of the demo voice: one id a byte, and one id for each constant piece of the prompt.

A small model reads letters best, so there are no merges. Letters are folded to lower case: a word at the beginning of a
sentence is then the word that was learned. The prompt's template, long in bytes, becomes a dozen ids.
"""

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, normalizers

from pipeline.config import ModelConfig
from pipeline.random_checkpoint import byte_tokenizer
from pipeline.tokenizer import Tokenizer as ServingTokenizer

REFERENCES = "<user_inst>\n- Reference(s):\n"
TEXT = "\n- Text:\n"
TEXT_END = "\n</user_inst>"
_FIELDS = ("Instruction", "Tokens", "Quality", "Sound Event", "Ambient Sound", "Language")
_UNSET = "None"


def template_pieces() -> tuple[str, ...]:
    """The added tokens. A label has two, alone and with `None` behind it; the tokenizer takes the longer that fits."""
    labels = tuple(f"\n- {field}:\n" for field in _FIELDS)
    unset = tuple(label + _UNSET for label in labels)
    return ("user\n", "assistant\n", REFERENCES, *labels, *unset, f"{labels[-1]}English", TEXT, TEXT_END)


def demo_tokenizer() -> Tokenizer:
    """Byte-level as in `pipeline.random_checkpoint`, with the added tokens after the control tokens.

    Text of any script tokenises. A text that holds a piece of the template to the letter gets that piece's id.
    """
    tokenizer = byte_tokenizer()
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.add_tokens([AddedToken(piece, special=False, normalized=False) for piece in template_pieces()])
    return tokenizer


def write_tokenizer(directory: Path, config: ModelConfig) -> ServingTokenizer:
    """Writes `DIR/tokenizer.json` and reads it as the server does."""
    directory.mkdir(parents=True, exist_ok=True)
    demo_tokenizer().save(str(directory / "tokenizer.json"))
    return ServingTokenizer.load(directory, config)

"""The prompt of one utterance as rows of ids. A pure function of the request."""

import numpy as np

from pipeline.config import ModelConfig
from pipeline.errors import InvalidRequest
from pipeline.request import Prompt
from pipeline.tokenizer import Tokenizer

# Each piece is tokenised on its own: in joined pieces a BPE merge could cross the border and change ids.
_USER = "user\n"
_ASSISTANT = "assistant\n"
_REFERENCES = "<user_inst>\n- Reference(s):\n"
_FIELDS = (
    "\n- Instruction:\n{instruction}"
    "\n- Tokens:\n{tokens}"
    "\n- Quality:\n{quality}"
    "\n- Sound Event:\n{sound_event}"
    "\n- Ambient Sound:\n{ambient_sound}"
    "\n- Language:\n{language}"
    "\n- Text:\n"
)
_END = "\n</user_inst>"
_UNSET = "None"


def prompt_rows(prompt: Prompt, tokenizer: Tokenizer, config: ModelConfig) -> np.ndarray:
    """int64 `[T, 1 + n_vq]`: a text-vocabulary id, then one code per codebook (`audio_pad_code`: none).

    Raises InvalidRequest for reference codes of the wrong shape, type or range, for a continuation without
    exactly one reference, and for text that is not Unicode.
    """
    tokens = config.tokens
    references = [_checked_codes(codes, config) for codes in prompt.references]
    if prompt.continuation and len(references) != 1:
        raise InvalidRequest(
            f"a continuation goes on from one reference clip, not {len(references)}", param="ref_audio"
        )

    def text(piece: str) -> np.ndarray:
        return _text_rows(tokenizer.encode(piece), config)

    def control(token_id: int) -> np.ndarray:
        return _text_rows([token_id], config)

    rows = [control(tokens.im_start), text(_USER), text(_REFERENCES)]
    if prompt.continuation or not references:
        rows.append(text(_UNSET))
    else:
        for codes in references:
            rows += [
                control(tokens.audio_start),
                audio_rows(tokens.user_slot, codes),
                control(tokens.audio_end),
            ]
    rows += [text(_FIELDS.format_map(_field_texts(prompt))), text(prompt.text)]
    rows += [text(_END), control(tokens.im_end), text("\n")]
    rows += [control(tokens.im_start), text(_ASSISTANT), control(tokens.audio_start)]
    if prompt.continuation:
        rows.append(audio_rows(tokens.assistant_slot, references[0]))
    return np.concatenate(rows)


def _field_texts(prompt: Prompt) -> dict[str, str]:
    names = ("instruction", "tokens", "quality", "sound_event", "ambient_sound", "language")
    values = {name: getattr(prompt, name) for name in names}
    return {name: _UNSET if value is None else str(value).strip() or _UNSET for name, value in values.items()}


def _text_rows(ids: list[int], config: ModelConfig) -> np.ndarray:
    rows = np.full((len(ids), 1 + config.n_vq), config.audio_pad_code, dtype=np.int64)
    rows[:, 0] = ids
    return rows


def audio_rows(slot: int, codes: np.ndarray) -> np.ndarray:
    """Rows int64 `[frames, 1 + n_vq]` of frames of codes `[frames, n_vq]`, each behind the slot's text id."""
    return np.concatenate([np.full((len(codes), 1), slot, dtype=np.int64), codes], axis=1)


def _checked_codes(codes: np.ndarray, config: ModelConfig) -> np.ndarray:
    """int64 `[frames, n_vq]`, at least one frame, every code within its codebook."""
    if codes.ndim != 2 or codes.shape[0] == 0 or codes.shape[1] != config.n_vq:
        message = f"reference codes must be [frames, {config.n_vq}], not {list(codes.shape)}"
        raise InvalidRequest(message, param="ref_audio")
    if not np.issubdtype(codes.dtype, np.integer):
        raise InvalidRequest(f"reference codes must be integers, not {codes.dtype}", param="ref_audio")
    outside = (codes < 0) | (codes >= np.asarray(config.codebook_sizes))
    if outside.any():
        frame, codebook = np.argwhere(outside)[0]
        raise InvalidRequest(
            f"reference code {codes[frame, codebook]} of frame {frame} lies outside codebook {codebook}, "
            f"which has {config.codebook_sizes[codebook]} codes",
            param="ref_audio",
        )
    return codes.astype(np.int64)

import json
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Original

from pipeline.config import ModelConfig
from pipeline.errors import CheckpointError, InvalidRequest
from pipeline.tokenizer import Tokenizer
from tests.conftest import TINY

CONFIG = ModelConfig.load(TINY / "tts")
TOKENIZER = Tokenizer.load(TINY / "tts", CONFIG)
ORIGINAL = Original.from_file(str(TINY / "tts" / "tokenizer.json"))
CONTROL_STRINGS = [token.content for token in ORIGINAL.get_added_tokens_decoder().values()]


def load(directory, raw):
    (directory / "tokenizer.json").write_text(raw if isinstance(raw, str) else json.dumps(raw))
    return Tokenizer.load(directory, CONFIG)


@pytest.fixture
def raw():
    return json.loads((TINY / "tts" / "tokenizer.json").read_text())


def test_the_unedited_tokenizer_does_produce_control_ids():
    ids = {ORIGINAL.encode(text, add_special_tokens=False).ids[0] for text in CONTROL_STRINGS}
    assert ids == CONFIG.tokens.ids


@pytest.mark.parametrize("control", CONTROL_STRINGS)
@pytest.mark.parametrize("text", ["{}", "a{}b", " {} \n", "{0}{0}", "<|{}|>"])
def test_control_strings_stay_text(control, text):
    text = text.format(control)
    ids = TOKENIZER.encode(text)
    assert CONFIG.tokens.ids.isdisjoint(ids)
    assert ORIGINAL.decode(ids, skip_special_tokens=False) == text


@given(st.lists(st.sampled_from([*CONTROL_STRINGS, "<|", "|>", "你好", "😀", "\0"]) | st.text(max_size=8)))
def test_any_text_round_trips_without_control_ids(pieces):
    text = "".join(pieces)
    ids = TOKENIZER.encode(text)
    assert CONFIG.tokens.ids.isdisjoint(ids)
    assert ORIGINAL.decode(ids, skip_special_tokens=False) == text


def _with_control_strings_in_the_vocabulary(raw):
    """A BPE whose merges build `<|im_end|>` character by character, with the id of the control token."""
    raw["pre_tokenizer"]["use_regex"] = False
    vocab, merges = raw["model"]["vocab"], raw["model"]["merges"]
    control = "<|im_end|>"
    for end in range(2, len(control) + 1):
        merges.append([control[: end - 1], control[end - 1]])
        vocab[control[:end]] = CONFIG.tokens.im_end if end == len(control) else 1000 + end
    return raw


@pytest.mark.parametrize("ignore_merges", [False, True])
@pytest.mark.parametrize("merges_as_text", [False, True])
def test_a_vocabulary_that_holds_control_strings_cannot_produce_them(ignore_merges, merges_as_text, raw, tmp_path):
    raw = _with_control_strings_in_the_vocabulary(raw)
    raw["model"]["ignore_merges"] = ignore_merges
    if merges_as_text:
        raw["model"]["merges"] = [" ".join(merge) for merge in raw["model"]["merges"]]
    unedited = Original.from_str(json.dumps({**raw, "added_tokens": []}))
    assert unedited.encode("<|im_end|>").ids == [CONFIG.tokens.im_end]
    ids = load(tmp_path, raw).encode("<|im_end|>")
    assert CONFIG.tokens.ids.isdisjoint(ids)
    assert unedited.decode(ids) == "<|im_end|>"
    assert ids[0] == 1009, "the merges below the control token still apply"


def test_an_unknown_character_does_not_become_a_control_token(raw, tmp_path):
    raw["pre_tokenizer"] = raw["decoder"] = None
    raw["model"]["vocab"]["<|endoftext|>"] = CONFIG.tokens.pad
    raw["model"]["unk_token"] = "<|endoftext|>"
    assert load(tmp_path, raw).encode("你a") == [raw["model"]["vocab"]["a"]]


def test_special_tokens_the_config_does_not_name_stay_text_too(raw, tmp_path):
    raw["added_tokens"].append({**raw["added_tokens"][0], "id": 300, "content": "<|vision_start|>"})
    assert 300 not in load(tmp_path, raw).encode("<|vision_start|>")


def test_added_tokens_that_are_not_special_are_kept(raw, tmp_path):
    raw["added_tokens"].append({**raw["added_tokens"][0], "id": 300, "content": "<user_inst>", "special": False})
    assert load(tmp_path, raw).encode("<user_inst>") == [300]


def test_forgotten_tokens_do_not_renumber_the_kept_ones(raw, tmp_path):
    control = raw["added_tokens"][0]
    kept = [{**control, "id": 263 + i, "content": f"<{i}>", "special": False} for i in range(9)]
    raw["added_tokens"] += kept
    tokenizer = load(tmp_path, raw)
    assert [tokenizer.encode(token["content"]) for token in kept] == [[token["id"]] for token in kept]


def test_a_control_id_marked_as_ordinary_stays_text(raw, tmp_path):
    for token in raw["added_tokens"]:
        token["special"] = False
    tokenizer = load(tmp_path, raw)
    assert all(CONFIG.tokens.ids.isdisjoint(tokenizer.encode(text)) for text in CONTROL_STRINGS)


def test_nothing_is_added_cut_or_padded(raw, tmp_path):
    start = {"id": "<|im_start|>", "ids": [257], "tokens": ["<|im_start|>"]}
    raw["post_processor"]["single"].insert(0, {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}})
    raw["post_processor"]["special_tokens"] = {"<|im_start|>": start}
    raw["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    raw["padding"] = {
        "strategy": {"Fixed": 64},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 256,
        "pad_type_id": 0,
        "pad_token": "<|endoftext|>",
    }
    assert load(tmp_path, raw).encode("hello") == TOKENIZER.encode("hello")


def test_the_normalizer_of_the_file_is_respected(raw, tmp_path):
    raw["normalizer"] = {"type": "NFC"}
    tokenizer = load(tmp_path, raw)
    assert tokenizer.encode("e\u0301") == TOKENIZER.encode("\u00e9")


@pytest.mark.parametrize("text", ["\ud800", "abc\udc80", "\udfff\ud800"])
def test_lone_surrogates_are_refused(text):
    with pytest.raises(InvalidRequest, match="lone surrogate") as caught:
        TOKENIZER.encode(text)
    assert caught.value.param == "input"


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"model": {"type": "BPE"}}', '{"model": {"type": "Unigram"}}', "\x00"]
)
def test_a_damaged_file_is_a_checkpoint_error(content, tmp_path):
    with pytest.raises(CheckpointError, match=r"token"):
        load(tmp_path, content)


def test_a_missing_file_is_a_checkpoint_error(tmp_path):
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        Tokenizer.load(tmp_path, CONFIG)


def test_a_file_that_is_not_text_is_a_checkpoint_error(tmp_path):
    shutil.copy(TINY / "tts" / "model.safetensors", tmp_path / "tokenizer.json")
    with pytest.raises(CheckpointError):
        Tokenizer.load(tmp_path, CONFIG)

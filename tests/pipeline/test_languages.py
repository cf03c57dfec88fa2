import pytest

from pipeline.errors import InvalidRequest
from pipeline.languages import LANGUAGES, estimated_frames, language_name


def test_there_are_31_languages_with_distinct_codes():
    assert len(LANGUAGES) == 31
    assert len(set(LANGUAGES.values())) == 31


@pytest.mark.parametrize("name", LANGUAGES)
def test_a_language_goes_by_name_and_code_in_any_case(name):
    code = LANGUAGES[name]
    for spelling in (name, name.lower(), name.upper(), code, code.upper(), f" {code}\n"):
        assert language_name(spelling) == name


@pytest.mark.parametrize(
    ("code", "name"),
    [("zh", "Chinese"), ("yue", "Cantonese"), ("ms", "Malay"), ("fa", "Persian"), ("tl", "Tagalog")],
)
def test_codes_mean_what_they_say(code, name):
    assert language_name(code) == name


@pytest.mark.parametrize("unset", [None, "", "  ", "auto", "AUTO", " Auto "])
def test_auto_and_blank_mean_unset(unset):
    assert language_name(unset) is None


@pytest.mark.parametrize("unknown", ["Klingon", "e", "en-klingon", "None", "英语"])
def test_an_unknown_language_is_refused_with_the_list(unknown):
    with pytest.raises(InvalidRequest) as caught:
        language_name(unknown)
    assert caught.value.param == "language"
    assert all(name in str(caught.value) for name in LANGUAGES)


@pytest.mark.parametrize(
    ("text", "language", "frames"),
    [
        ("a" * 100, "English", 87),
        ("a" * 100, "French", 90),
        ("a" * 100, None, 90),
        ("好" * 10, "Chinese", 31),
        ("好" * 10, None, 31),
        ("好" * 10, "Japanese", 22),
        ("あ" * 10, "Japanese", 22),
        ("ア" * 10, None, 22),
        ("한" * 10, "Korean", 18),
        ("한" * 10, None, 18),
        ("", None, 0),
    ],
)
def test_frames_follow_the_rates_of_the_languages(text, language, frames):
    assert estimated_frames(text, language) == frames


def test_text_in_another_script_than_its_language_is_not_starved():
    assert estimated_frames("好" * 100, "English") == 310


def test_mixed_text_counts_each_script():
    assert estimated_frames("好" * 10 + "a" * 10, None) == 40


def test_decomposed_hangul_counts_as_composed():
    assert estimated_frames("\u1112\u1161\u11ab" * 10, "Korean") == 18


def test_a_digit_counts_as_a_word():
    assert estimated_frames("1" * 10, None) == 36


@pytest.mark.parametrize(("text", "frames"), [("[pause 2s]", 25), ("[pause 3.2s]", 40), ("aa[pause 2s]" * 5, 134)])
def test_written_pauses_count_their_seconds(text, frames):
    assert estimated_frames(text, None) == frames


def test_an_absurd_pause_is_text():
    assert estimated_frames(f"[pause {'9' * 400}s]", None) < 2000

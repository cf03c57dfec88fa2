import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.languages import estimated_frames
from pipeline.marks import something_to_say
from pipeline.sentences import SentenceReader, split_text

# ‖ marks where sentences end; nothing else may be taken for an end.
SENTENCES = [
    ("English", "One sentence. ‖Another one! ‖A third? ‖Yes."),
    ("English", "Dr. Smith met Mrs. Jones and Prof. Lee on St. John's Rd. yesterday. ‖They talked."),
    ("English", "It costs $3.50, or 1,000.25 in all. ‖Version 2.11.3 is out. ‖Pi is 3.14."),
    ("English", "He came at 3:45 p.m. on 12.05.2024 by train. ‖He left at 5."),
    ("English", "The shop opens at 9 a.m. ‖Then we go."),
    ("English", "Some fruit, e.g. apples, i.e. Malus domestica, keeps. ‖Good."),
    ("English", "The U.S. Army and the U.K. Government agreed. ‖Fine."),
    ("English", "He lives in the U.S. ‖She does not."),
    ("English", "J. R. R. Tolkien and J.K. Rowling wrote. ‖We read."),
    ("English", "See No. 5, Fig. 3, Vol. II and pp. 10-12. ‖No. ‖That is all."),
    ("English", "She holds a Ph.D. in physics. ‖He does not."),
    ("English", "Apples vs. Pears, cf. Miller, approx. Ten. ‖Done."),
    ("English", "They came on Jan. 5 and Sept. 12. ‖We left."),
    ("English", "Read https://example.com/a.b?c=d.e!f and write to a.b@example.org now. ‖Thanks."),
    ("English", "Visit example.com. ‖Then call."),
    ("English", "Wait... what? ‖Well… maybe. ‖He left... ‖Then it rained."),
    ("English", "And . . . so on. ‖End it."),
    ("English", '"Really?" he asked. ‖"Yes," she said. ‖"Go."'),
    ("English", "“Stop. Look. Listen.” ‖That was all."),
    ("English", "(He laughed. She did not.) ‖It was late."),
    ("English", "It was over (finally!). ‖He slept."),
    ("English", "He shouted “Fire!” ‖Nobody came."),
    ("English", "What?! ‖No!!! ‖Why??? ‖Because."),
    ("English", "First line\n‖Second line\n\n‖A paragraph"),
    ("English", "Shopping:\n‖- eggs\n‖- milk\n‖* bread"),
    ("English", "1. First point\n‖2. Second point\n‖10) Tenth"),
    ("English", "This line is wrapped\nin the middle of it. ‖The next one is not."),
    ("English", "Wait. ‖[pause 1.5s] Go on. ‖[S1] Hello. ‖[laughs. A lot.] Bye."),
    ("English", "hello there. ‖how are you? ‖i'm fine."),
    ("English", "Great! ‖🎉 Thanks. ‖👩‍👩‍👧 Bye."),
    ("English", "He felt ill. ‖I am ok. ‖We crossed the Bay. ‖Come on. ‖It was me."),
    (None, "Node.js and ASP.NET differ. ‖So do a.out and b.c."),
    (None, "Wi-Fi 6.0 is fast. ‖IPv4 is 10.0.0.1 here."),
    ("German", "Am 3. Mai 2024 kam Dr. Maier, z. B. mit der S-Bahn. ‖Das war gut."),
    ("German", "Der 2. Weltkrieg endete 1945. ‖Danach kam Frieden."),
    (None, "Am 3. Oktober ist Feiertag. ‖Dann wird gefeiert."),
    ("German", "Er sagte: „Geh nach Hause.“ ‖Dann war es still."),
    ("German", "Brot, Milch usw. kosten ca. 5 Euro, d.h. wenig bzw. nichts. ‖Gut."),
    ("German", "Er kam. ‖»Wo warst du?« ‖Niemand sprach."),
    ("French", "M. Dupont et Mme. Durand habitent av. Foch. ‖Ils rient."),
    ("French", "« Bonjour ! » ‖Puis il partit. ‖Où ça ?"),
    ("French", "Voir p. 12, c.-à-d. la suite, p.ex. ici. ‖Voilà."),
    ("Spanish", "El Sr. García y la Dra. López llegaron. ‖¿Dónde están? ‖¡Aquí!"),
    ("Spanish", "Vive en EE.UU. desde 2010. ‖Ud. Lo sabe."),
    ("Italian", "Il Sig. Rossi e il Dott. Bianchi sono qui. ‖Perché? ‖Non so."),
    ("Portuguese", "O Sr. Silva mora na Av. Brasil, n.º 5. ‖É longe."),
    ("Dutch", "Dhr. Jansen en mevr. De Vries komen a.s. maandag. ‖Mooi."),
    ("Polish", "Mieszka na ul. Długiej, tj. Blisko, np. Tutaj. ‖Dobrze."),
    ("Polish", "To jest 5. Dzień miesiąca. ‖Idziemy."),
    ("Czech", "Je to 3. Května, např. Dnes. ‖Dobře."),
    ("Russian", "Он живёт на ул. Ленина, т. е. близко. ‖Хорошо."),
    ("Russian", "И. С. Тургенев писал. ‖«Кто там?» ‖Никто не знал."),
    ("Turkish", "Doç. Dr. Yılmaz geldi. ‖Güzel."),
    ("Swedish", "Det är bl.a. Anna, t.ex. Nu. ‖Bra."),
    ("Greek", "Πού είσαι; ‖Εδώ είμαι. ‖Ο κ. Παππάς ήρθε."),
    ("Chinese", "今天天气很好。‖我们走吧！‖真的吗？‖好。"),
    ("Chinese", "“我们走吧！”‖他说。‖她笑了（很开心。）‖然后走了。"),
    ("Chinese", "圆周率是3.14，版本是2.0。‖对吗?‖对!‖好。"),
    ("Chinese", "我想……‖算了。"),
    ("Cantonese", "你食咗飯未呀？‖食咗喇。"),
    ("Japanese", "「すごい！」と言った。‖次は「はい。」です。‖『終わり。』‖猫だ。"),
    ("Japanese", "今日は晴れです。‖明日は？！‖雨だ…。‖そう"),
    ("Korean", "안녕하세요. ‖반갑습니다! ‖어디 가세요? ‖집에요."),
    ("Hindi", "यह राम है। ‖वह सीता है। ‖डॉ. शर्मा आए॥ ‖ठीक।"),
    ("Arabic", "كيف حالك؟ ‖أنا بخير. ‖شكرا!"),
    ("Persian", "حال شما چطور است؟ ‖خوبم. ‖ممنون."),
    ("Hebrew", "מה שלומך? ‖טוב. ‖תודה!"),
    ("Thai", "สวัสดีครับ ‖ผมชื่อสมชาย ‖ยินดีที่ได้รู้จัก"),
    ("Vietnamese", "TS. Nguyễn đến rồi. ‖Tốt quá!"),
    (None, "آپ کیسے ہیں؟ ‖میں ٹھیک ہوں۔ ‖شکریہ۔"),
    (None, "សួស្តី។ ‖លាហើយ។"),
    (None, "Բարեւ։ ‖Ինչպես ես։"),
    (None, "ሰላም ነው። ‖ደህና ነኝ።"),
]


@pytest.mark.parametrize(("language", "marked"), SENTENCES, ids=[marked[:30] for _, marked in SENTENCES])
def test_a_sentence_ends_where_a_reader_would_say(language, marked):
    rest = marked.replace("‖", "") + "\n9"
    for sentence in marked.split("‖"):
        # With a little less room than the whole needs, the first part is the first sentence.
        first = split_text(rest, estimated_frames(rest, language) - 1, language)[0]
        assert first == sentence.strip()
        rest = rest[len(first) :].lstrip()
    assert rest == "9"


PARTS = [
    # The first part is one sentence, later ones are packed full.
    ("One two. Three. Four. Five. Six.", 20, ["One two.", "Three. Four. Five.", "Six."]),
    ("Aa bb cc, dd ee ff gg hh.", 16, ["Aa bb cc,", "dd ee ff gg hh."]),
    ("Aa bb cc dd ee ff gg hh.", 13, ["Aa bb cc dd ee", "ff gg hh."]),
    ("aaaaaaaaaaaaaaaaaaaa", 9, ["aaaaaaaaaa", "aaaaaaaaaa"]),
    ("On May 3, 2024 we ate and drank.", 32, ["On May 3, 2024 we", "ate and drank."]),
    ("We had 10 000 000 reasons.", 31, ["We had", "10 000 000", "reasons."]),
    ("Wait - what (or who) is it?", 12, ["Wait - what", "(or who) is", "it?"]),
    ("Say hello [pause 1s] now.", 20, ["Say hello", "[pause 1s] now."]),
    ("你好吗，我很好，他也好。", 13, ["你好吗，", "我很好，", "他也好。"]),
    ("Ends —here it goes on; and so on.", 19, ["Ends —", "here it goes on;", "and so on."]),
    ("Yes ... !!! ??? ... ---", 4, ["Ye", "s ... !!! ??? ... ---"]),
    ("... Yes. No.", 10, ["... Yes.", "No."]),
    ("👩‍👩‍👧 a 👩‍👩‍👧 b 👩‍👩‍👧 c", 9, ["👩‍👩‍👧 a", "👩‍👩‍👧 b", "👩‍👩‍👧 c"]),
]


@pytest.mark.parametrize(("text", "most_frames", "parts"), PARTS)
def test_parts_are_full_but_for_the_first_and_cut_at_the_best_place(text, most_frames, parts):
    assert split_text(text, most_frames, None) == parts


@pytest.mark.parametrize("text", ["", "  ", "...", " Hi. There. ", "[pause 2s]", "a\n\nb"])
def test_a_text_that_fits_is_left_alone(text):
    assert split_text(text, 100, None) == [text]


def test_a_text_with_nothing_to_say_is_one_part():
    assert split_text("... " * 50, 10, None) == ["... " * 50]


def test_marks_are_never_cut():
    text = "[pause 3.2s] abc [pause 10.5s] def [S1] ghi [laughs, softly] jkl" * 20
    parts = split_text(text, 3, None)
    marks = regex.compile(r"\[[^\[\]]+\]")
    assert [mark for part in parts for mark in marks.findall(part)] == marks.findall(text)


PIECES = st.sampled_from(
    [".", "...", "…", "!", "?", "。", "」", "「", "“", "”", '"', "(", ")", "[", "]", ",", "，", ";", ":", "—", " ",
     "  ", "\n", "\r\n", "\u00a0", "\u200b", "\u200d", "\u0301", "a", "B", "é", "e\u0301", "3", "3.14", "1,000",
     "Dr.", "e.g.", "U.S.", "hello", "World", "你好", "か\u3099", "हिन्दी", "สวัสดี", "각", "\u1112\u1161\u11ab",
     "👩‍👩‍👧", "🇫🇷", "1️⃣", "[pause 0.5s]", "[pause 9s]", "[S1]", "https://a.bc/d?e=f", "x@y.zz", "${token:5}",
     "\u3164", "ﷺ"]
)  # fmt: skip
TEXTS = st.one_of(st.lists(PIECES, max_size=60).map("".join), st.text(max_size=80))
LANGUAGES = st.sampled_from([None, "English", "German", "Japanese", "Thai"])
ATOM = regex.compile(r"\[pause\s[^\[\]]*\]|\$\{token:\d{1,9}\}|\[[^\[\]\r\n]{1,60}\]|\X")


def unspaced(text):
    return "".join(text.split())


@settings(deadline=None)
@given(TEXTS, st.integers(1, 60), LANGUAGES)
def test_parts_hold_the_text_within_the_limit_and_each_says_something(text, most_frames, language):
    parts = split_text(text, most_frames, language)
    assert unspaced("".join(parts)) == unspaced(text)
    if estimated_frames(text, language) <= most_frames or not something_to_say(text):
        assert parts == [text]
        return
    position = 0
    borders = {match.end() for match in ATOM.finditer(text)}
    for part in parts:
        assert something_to_say(part)
        position = text.index(part, position) + len(part)
        assert position in borders, "cut inside a grapheme cluster or mark"
        spoken = [atom for atom in ATOM.findall(part) if something_to_say(atom)]
        assert estimated_frames(part, language) <= most_frames or len(spoken) == 1


@settings(deadline=None)
@given(TEXTS, st.integers(1, 60), LANGUAGES)
def test_the_same_text_is_always_split_the_same_way(text, most_frames, language):
    assert split_text(text, most_frames, language) == split_text(text, most_frames, language)


HOSTILE = [
    ".",
    "a.",
    ". a",
    "(",
    "([{",
    "[a",
    '"a. ',
    "a",
    "a\u0301",
    "\u0301",
    "👩‍",
    "你",
    " ",
    "a ",
    "J. ",
    ". ",
    "[pause 1s]",
    "1",
    "1.",
]


@pytest.mark.parametrize("unit", HOSTILE)
def test_hostile_text_is_split_in_linear_time(unit):
    text = "b" + unit * (100_000 // len(unit)) + "c"
    parts = split_text(text, 200, None)
    assert unspaced("".join(parts)) == unspaced(text)


def read(text, language, size):
    """What a reader takes out of `text` that comes in pieces of `size` characters."""
    reader = SentenceReader(language)
    parts = [reader.write(text[start : start + size]) for start in range(0, len(text), size)]
    return [part for part in [*parts, reader.flush()] if part]


OPEN_ENDED = [(language, text) for language, text in SENTENCES if not regex.search(r"[\p{Ps}\p{Pi}\p{Pf}\"]", text)]


@pytest.mark.parametrize(("language", "text"), OPEN_ENDED, ids=[text[:30] for _, text in OPEN_ENDED])
def test_a_text_that_comes_letter_by_letter_has_the_same_sentences(language, text):
    expected = [part.strip() for part in text.split("‖")]
    followed = text.replace("‖", "") + "\n\nThe end "
    assert [part.strip() for part in read(followed, language, 1)] == [*expected, "The end"]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from([text.replace("‖", "") for _, text in SENTENCES]), min_size=1), st.integers(1, 40))
def test_nothing_is_lost_of_a_text_in_pieces_and_all_of_it_is_looked_at(texts, size):
    text = " ".join(texts)
    parts = read(text, None, size)
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert [part.strip() for part in read(text, None, len(text))][-1].endswith(parts[-1].strip())


def test_a_sentence_waits_for_what_follows_it():
    reader = SentenceReader("English")
    assert reader.write("It costs 3.") == ""
    assert reader.write("50 in all.") == ""
    assert reader.write(" ") == ""
    assert reader.write("N") == ""
    assert reader.write("o, ") == "It costs 3.50 in all."
    assert reader.waiting == 4
    assert reader.flush() == "No, "
    assert reader.flush() == ""

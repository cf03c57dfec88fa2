"""What is uploaded stays, to the bit, for all replicas; what is deleted is gone for all of them."""

import errno
import multiprocessing
import os
import pickle
import random
import re
import signal
import sqlite3
import threading
import time
import unicodedata
import uuid
from contextlib import closing, suppress
from pathlib import Path
from typing import ClassVar

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.errors import InvalidRequest
from pipeline.reference import content_key
from pipeline.voice import (
    MAX_DESCRIPTION,
    MAX_NAME,
    MAX_TRANSCRIPT,
    VoiceLimit,
    VoiceProtected,
    VoiceStoreError,
    VoiceTaken,
    VoiceUnknown,
    VoiceUnusable,
    checked_name,
    name_key,
    too_many_voices,
    voice_taken,
)
from pipeline.voices import VoiceStore

MODEL = "codec-1"
SPAWN = multiprocessing.get_context("spawn")
FORK = multiprocessing.get_context("fork")


def clip_of(seed, samples=500):
    return np.random.default_rng(seed).standard_normal((2, samples)).astype(np.float32)


def codes_of(seed, frames=7):
    return np.random.default_rng(seed).integers(0, 1024, (frames, 12))


def same_bits(left, right):
    return (left.dtype, left.shape, left.tobytes()) == (right.dtype, right.shape, right.tobytes())


def files_of(root):
    return sorted(str(path.relative_to(root)) for path in Path(root).rglob("*") if path.is_file())


def stored_names(store):
    return [voice.name for voice in store.voices()]


@pytest.fixture(params=["directory", "memory"])
def url(request, tmp_path):
    return str(tmp_path / "voices") if request.param == "directory" else f"memory://{uuid.uuid4()}/voices"


@pytest.fixture
def root(tmp_path):
    return tmp_path / "voices"


# What is kept


def test_a_voice_survives_a_restart(url):
    added = VoiceStore(url, MODEL).add(
        "Anna", clip_of(1), transcript="Hello \0 there.", description="älter", codes=codes_of(1)
    )
    store = VoiceStore(url, MODEL)
    voice = store.get("Anna")
    assert voice == added
    assert store.voices() == [voice]
    assert (voice.name, voice.transcript, voice.description) == ("Anna", "Hello \0 there.", "älter")
    assert abs(voice.created - time.time()) < 60
    assert voice.content == content_key(clip_of(1))
    assert same_bits(store.clip(voice), clip_of(1))
    assert same_bits(store.codes(voice.content), codes_of(1))


@pytest.mark.parametrize("order", ["C", "F"])
def test_every_bit_of_clip_and_codes_survives(url, order):
    bits = np.random.default_rng(0).integers(0, 2**32, (2, 4000), dtype=np.uint32)
    bits[0, :4] = [0x80000000, 0x00000001, 0x7F800000, 0x7FC00001]  # -0, denormal, infinity, NaN with a payload
    clip = np.asarray(bits.view(np.float32), order=order)
    codes = np.asarray([[0, 2**62], [-1, 5], [7, -(2**63)]], order=order)
    store = VoiceStore(url, MODEL)
    voice = store.add("Anna", clip, codes=codes)
    assert store.clip(voice).view(np.uint32).tolist() == bits.tolist()
    assert store.codes(voice.content).tolist() == codes.tolist()


@pytest.mark.parametrize("character", ["a", "\x01", "\\", '"', "𝒜"])
def test_the_longest_texts_survive(url, character):
    transcript, description = "a" + character * (MAX_TRANSCRIPT - 1), "b" + character * (MAX_DESCRIPTION - 1)
    store = VoiceStore(url, MODEL)
    added = store.add("a" * MAX_NAME, clip_of(1, samples=100_000), transcript=transcript, description=description)
    assert store.get("a" * MAX_NAME) == added
    assert store.voices() == [added]


def test_voices_are_listed_in_the_order_in_which_they_came(tmp_path):
    store = VoiceStore(str(tmp_path), MODEL)
    for name in ["Zoe", "Anna", "Mia"]:
        store.add(name, clip_of(1))
    assert stored_names(store) == ["Zoe", "Anna", "Mia"]


def test_codes_are_shared_by_equal_clips_and_kept_while_one_is_left(url):
    store = VoiceStore(url, MODEL)
    anna = store.add("Anna", clip_of(1), codes=codes_of(1))
    store.add("Also Anna", clip_of(1))
    store.add("Mia", clip_of(2))
    assert same_bits(store.codes(store.get("Also Anna").content), codes_of(1))
    assert store.codes(store.get("Mia").content) is None
    store.delete("Anna")
    assert same_bits(store.codes(anna.content), codes_of(1))
    store.delete("Also Anna")
    assert store.codes(anna.content) is None


def test_codes_belong_to_one_model(url):
    first, second = VoiceStore(url, "codec-1"), VoiceStore(url, "codec/../2 ü")
    voice = first.add("Anna", clip_of(1), codes=codes_of(1))
    assert second.codes(voice.content) is None
    second.keep_codes(voice, codes_of(2))
    assert same_bits(first.codes(voice.content), codes_of(1))
    assert same_bits(second.codes(voice.content), codes_of(2))


def test_a_store_can_be_pickled(url):
    store = pickle.loads(pickle.dumps(VoiceStore(url, MODEL, reserved=["default"], max_voices=1)))
    store.add("Anna", clip_of(1))
    assert stored_names(VoiceStore(url, MODEL)) == ["Anna"]
    with pytest.raises(VoiceProtected):
        store.add("default", clip_of(1))
    with pytest.raises(VoiceLimit):
        store.add("Mia", clip_of(1))


@pytest.mark.parametrize("error", [voice_taken("ä"), too_many_voices(3), VoiceUnknown("gone"), VoiceStoreError("busy")])
def test_errors_survive_pickling(error):
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (type(error), str(error))


# Deletion


def test_a_deleted_voice_leaves_nothing_behind(root):
    store = VoiceStore(str(root), MODEL)
    empty = files_of(root)
    store.add("Anna", clip_of(1), transcript="A secret.", codes=codes_of(1))
    assert len(files_of(root)) == len(empty) + 2
    assert b"A secret." in (root / "voices.sqlite3").read_bytes()
    store.delete("Anna")
    assert files_of(root) == empty
    assert b"A secret." not in (root / "voices.sqlite3").read_bytes()


def test_deleting_what_is_not_there_is_an_error(url):
    store = VoiceStore(url, MODEL)
    store.add("Anna", clip_of(1))
    store.delete("anna")
    for name in ["Anna", "Mia", "../x", "\ud800"]:
        with pytest.raises(VoiceUnknown):
            store.delete(name)
        with pytest.raises(VoiceUnknown):
            store.get(name)


def test_a_voice_uploaded_again_never_sounds_like_the_deleted_one(url):
    store, other = VoiceStore(url, MODEL), VoiceStore(url, MODEL)
    old = store.add("Anna", clip_of(1), codes=codes_of(1))
    assert other.get("Anna") == old
    store.delete("Anna")
    new = store.add("Anna", clip_of(2))
    assert other.get("Anna") == new
    assert new.id != old.id
    assert same_bits(other.clip(new), clip_of(2))
    assert other.codes(new.content) is None
    with pytest.raises(VoiceUnknown):
        other.clip(old)


def test_codes_that_come_after_the_deletion_are_not_kept(url):
    store = VoiceStore(url, MODEL)
    voice = store.add("Anna", clip_of(1))
    store.delete("Anna")
    store.keep_codes(voice, codes_of(1))
    assert store.codes(voice.content) is None
    store.add("Anna", clip_of(2))
    store.keep_codes(voice, codes_of(1))
    assert store.codes(voice.content) is None


# Names


def test_one_name_is_one_voice_however_it_is_written(url):
    store = VoiceStore(url, MODEL)
    for name, others in {
        "Zoë": ["zoë", "ZOE\u0308", "Ｚoë"],
        "Straße": ["STRASSE", "strasse"],
        "ΣΊΣΥΦΟΣ": ["σίσυφος"],
        "가": ["\u1100\u1161"],
    }.items():
        voice = store.add(name, clip_of(1))
        for other in others:
            assert store.get(other) == voice
            with pytest.raises(VoiceTaken):
                store.add(other, clip_of(2))
            with pytest.raises(VoiceTaken):
                store.check_new(other)


@pytest.mark.parametrize(
    "name",
    ["a", "7", "a" * MAX_NAME, "Anna-Lena_2 v1.0", "한국어 목소리", "हिन्दी", "ภาษาไทย", "שלום", "٣ أصوات", "é" * 64],
)
def test_names_of_any_script_are_allowed(name):
    assert checked_name(name) == name
    assert checked_name(unicodedata.normalize("NFD", name)) == name


@pytest.mark.parametrize(
    "name",
    [
        "", " ", " a", "a ", "a\u3000", "\u00a0a", ".", "..", ".a", "-a", "_a", "\u0301a", "a" * (MAX_NAME + 1),
        "a/b", "../a", "a\\b", "a\0", "a\n", "a\tb", "a:b", "a%2fb", "a?b", "a*", "a'b", 'a"b', "a|b", "a<b>", "~a",
        "a\u202eb", "a\u200fb", "a\u2066b", "a\u200bb", "a\u200db", "a\ufeff", "a\ufe0f", "a\u034f", "\u3164",
        "a\U000e0100", "a\ud800", "\udfff", "😀", "a😀", "1️⃣", "½", "Ⅷ", "a\u20dd", "a\u0378",
        "a" * 10**6, "a" + "\u0301\u0327" * 10**5,
    ],
)  # fmt: skip
def test_other_names_are_refused(name, tmp_path):
    store = VoiceStore(str(tmp_path), MODEL)
    for call in (lambda: store.add(name, clip_of(1)), lambda: store.check_new(name)):
        with pytest.raises(InvalidRequest) as caught:
            call()
        assert caught.value.param == "name"
        assert "1 to 64 letters" in str(caught.value)
    assert stored_names(store) == []


ANY_TEXT = st.text(st.one_of(st.characters(exclude_categories=()), st.sampled_from(" -_./\\\0\u202eaAéß😀\ud800")))


@settings(deadline=None, derandomize=True, max_examples=400)
@given(ANY_TEXT)
@example("ﬀ" * MAX_NAME)
def test_a_name_that_is_allowed_is_plain_text(name):
    try:
        allowed = checked_name(name)
    except InvalidRequest:
        return
    assert 1 <= len(allowed) <= MAX_NAME
    assert unicodedata.is_normalized("NFC", allowed)
    assert allowed == checked_name(allowed) == allowed.strip()
    assert allowed.encode().decode() == allowed
    assert not set(allowed) & set("/\\\0\n\r\t:;'\"<>|?*&%$#")
    assert all(unicodedata.bidirectional(c) not in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI") for c in allowed)
    assert all(c.isprintable() and not c.isspace() for c in allowed.replace(" ", ""))
    assert name_key(allowed) == name_key(name_key(allowed)) == name_key(unicodedata.normalize("NFD", allowed))


def test_what_lies_on_disk_is_not_named_by_clients(tmp_path):
    root = tmp_path / "voices"
    store = VoiceStore(str(root), "../../model")
    for name in ["con", "voices.sqlite3", "a.safetensors", "a.part", "a..", "x" * 64, "שלום"]:
        store.add(name, clip_of(1, samples=10), codes=codes_of(1))
    assert [path.name for path in tmp_path.iterdir()] == ["voices"]
    pattern = r"voices\.sqlite3|clips/[0-9a-f]{32}\.safetensors|codes/[0-9a-f]{32}/[0-9a-f]{64}\.safetensors"
    assert all(re.fullmatch(pattern, name) for name in files_of(root))


def test_built_in_names_can_be_neither_taken_nor_deleted(url):
    store = VoiceStore(url, MODEL, reserved=["default", "alloy"])
    for name in ["default", "Alloy", "ＤＥＦＡＵＬＴ"]:
        with pytest.raises(VoiceProtected):
            store.add(name, clip_of(1))
        with pytest.raises(VoiceProtected):
            store.check_new(name)
        with pytest.raises(VoiceProtected):
            store.delete(name)


def test_a_voice_that_was_there_before_its_name_was_built_in_can_be_deleted(url):
    VoiceStore(url, MODEL).add("Anna", clip_of(1))
    store = VoiceStore(url, MODEL, reserved=["anna"])
    store.delete("Anna")
    with pytest.raises(VoiceProtected):
        store.delete("Anna")


@pytest.mark.parametrize("field, param", [("transcript", "ref_text"), ("description", "description")])
def test_texts_that_are_too_long_or_no_text_are_refused(url, field, param):
    store = VoiceStore(url, MODEL)
    for text in ["a" * (MAX_TRANSCRIPT + 1), "a\ud800"]:
        with pytest.raises(InvalidRequest) as caught:
            store.add("Anna", clip_of(1), **{field: text})
        assert caught.value.param == param
    assert getattr(store.add("Anna", clip_of(1), **{field: " \n"}), field) is None


def test_there_are_no_more_voices_than_allowed(url):
    store = VoiceStore(url, MODEL, max_voices=2)
    store.add("Anna", clip_of(1))
    store.add("Mia", clip_of(1))
    for call in (lambda: store.add("Zoe", clip_of(1)), lambda: store.check_new("Zoe")):
        with pytest.raises(VoiceLimit, match="2 voices"):
            call()
    with pytest.raises(VoiceTaken):
        store.add("Mia", clip_of(1))
    store.delete("Anna")
    store.check_new("Zoe")
    store.add("Zoe", clip_of(1))
    assert stored_names(store) == ["Mia", "Zoe"]


# Several replicas

NAMES = [f"voice {number}" for number in range(12)]


def race(url, seed, barrier, results):
    store = VoiceStore(url, MODEL)
    added, deleted = [], []
    barrier.wait()
    for name in NAMES:
        with suppress(VoiceTaken):
            store.add(name, clip_of(seed), codes=codes_of(seed))
            added.append(name)
    barrier.wait()
    barrier.wait()
    for name in NAMES:
        with suppress(VoiceUnknown):
            store.delete(name)
            deleted.append(name)
    results.put((seed, added, deleted))


def test_of_replicas_that_upload_or_delete_at_once_exactly_one_does(root):
    seeds = [1, 2, 3]
    barrier, results = FORK.Barrier(len(seeds) + 1), FORK.Queue()
    replicas = [FORK.Process(target=race, args=(str(root), seed, barrier, results)) for seed in seeds]
    for replica in replicas:
        replica.start()
    barrier.wait(120)
    barrier.wait(120)
    store = VoiceStore(str(root), MODEL)
    clips = {voice.name: store.clip(voice) for voice in store.voices()}
    codes = {voice.name: store.codes(voice.content) for voice in store.voices()}
    barrier.wait(120)
    outcomes = [results.get(timeout=120) for _ in replicas]
    for replica in replicas:
        replica.join(120)
    assert sorted(clips) == sorted(NAMES)
    assert sorted(name for _, added, _ in outcomes for name in added) == sorted(NAMES)
    assert sorted(name for _, _, deleted in outcomes for name in deleted) == sorted(NAMES)
    for seed, added, _ in outcomes:
        assert all(same_bits(clips[name], clip_of(seed)) for name in added)
        assert all(same_bits(codes[name], codes_of(seed)) for name in added)
    assert files_of(root) == ["voices.sqlite3"]


def answer(url, connection):
    store = VoiceStore(url, MODEL)
    while (name := connection.recv()) is not None:
        try:
            connection.send(store.clip(store.get(name)).tobytes())
        except VoiceUnknown:
            connection.send(None)


def test_uploads_and_deletions_are_seen_at_once_by_another_process(root):
    ours, theirs = SPAWN.Pipe()
    replica = SPAWN.Process(target=answer, args=(str(root), theirs))
    replica.start()

    def heard(name):
        ours.send(name)
        assert ours.poll(120)
        return ours.recv()

    store = VoiceStore(str(root), MODEL)
    for seed in range(10):
        assert heard("Anna") is None
        store.add("Anna", clip_of(seed))
        assert heard("ANNA") == clip_of(seed).tobytes()
        store.delete("Anna")
    assert heard("Anna") is None
    ours.send(None)
    replica.join(120)
    assert replica.exitcode == 0


def test_of_threads_that_upload_at_once_exactly_one_does(url):
    store = VoiceStore(url, MODEL)
    barrier = threading.Barrier(6)
    added = []

    def upload(seed):
        barrier.wait()
        for name in NAMES[:4]:
            with suppress(VoiceTaken):
                store.add(name, clip_of(seed))
                added.append((name, seed))

    threads = [threading.Thread(target=upload, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(name for name, _ in added) == NAMES[:4]
    assert all(same_bits(store.clip(store.get(name)), clip_of(seed)) for name, seed in added)


def test_voices_are_found_while_another_replica_writes(root):
    store = VoiceStore(str(root), MODEL)
    added = store.add("Anna", clip_of(1))
    with closing(sqlite3.connect(root / "voices.sqlite3", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("DELETE FROM voices")
        assert store.get("Anna") == added
        assert same_bits(store.clip(added), clip_of(1))
        writer.execute("COMMIT")
    with pytest.raises(VoiceUnknown):
        store.get("Anna")


def test_the_index_needs_nothing_that_network_file_systems_lack(root):
    VoiceStore(str(root), MODEL)
    with closing(sqlite3.connect(root / "voices.sqlite3")) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


# Crashes and damage


def write_for_ever(url, seed, working):
    store = VoiceStore(url, MODEL)
    working.set()
    choose = random.Random(seed)
    while True:
        number = choose.randrange(6)
        name = NAMES[number]
        with suppress(VoiceTaken, VoiceUnknown):
            if choose.random() < 0.6:
                store.add(name, clip_of(number, samples=20_000), codes=codes_of(number))
            else:
                store.delete(name)


def test_writers_killed_at_any_moment_leave_a_store_that_works(root):
    pause = random.Random(0)
    for seed in range(20):
        working = FORK.Event()
        writer = FORK.Process(target=write_for_ever, args=(str(root), seed, working))
        writer.start()
        assert working.wait(60)
        time.sleep(pause.uniform(0, 0.1))
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        store = VoiceStore(str(root), MODEL)
        voices = store.voices()
        for voice in voices:
            number = NAMES.index(voice.name)
            assert same_bits(store.clip(voice), clip_of(number, samples=20_000))
            codes = store.codes(voice.content)
            assert codes is None or same_bits(codes, codes_of(number))
        clips = [name for name in files_of(root) if name.startswith("clips/")]
        assert clips == sorted(f"clips/{voice.id}.safetensors" for voice in voices)
        assert not [name for name in files_of(root) if name.endswith(".part")]
    store.keep_codes(store.add("Anna", clip_of(1)), codes_of(1))


@pytest.mark.parametrize("last_call", ["fsync", "close"])
def test_an_upload_that_breaks_off_leaves_no_voice_and_no_files(root, last_call):
    store = VoiceStore(str(root), MODEL)
    kept = store.add("Mia", clip_of(2), codes=codes_of(2))
    before = files_of(root)

    def die():
        # The clip's file has its temporary name at the first fsync, its own at the first close, and no row yet.
        setattr(os, last_call, lambda _: os._exit(7))
        store.add("Anna", clip_of(1), codes=codes_of(1))

    writer = FORK.Process(target=die)
    writer.start()
    writer.join()
    assert writer.exitcode == 7
    assert files_of(root) != before
    with pytest.raises(VoiceUnknown):
        store.get("Anna")
    again = VoiceStore(str(root), MODEL)
    assert again.voices() == [kept]
    assert files_of(root) == before
    again.add("Anna", clip_of(1))


def test_files_of_others_are_left_alone(root):
    VoiceStore(str(root), MODEL)
    foreign = root / "clips" / ".nfs000000000000beef00000001"
    foreign.write_bytes(b"held open by a reader")
    VoiceStore(str(root), MODEL)
    assert foreign.exists()


def damaged(data, how):
    match how:
        case "cut":
            return data[:-40]
        case "flipped":
            return data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]
        case "empty":
            return b""
        case "text":
            return b"x" * 99


@pytest.mark.parametrize("how", ["cut", "flipped", "empty", "text", "missing"])
def test_a_damaged_clip_makes_one_voice_unusable(root, how):
    store = VoiceStore(str(root), MODEL)
    broken, whole = store.add("Anna", clip_of(1), codes=codes_of(1)), store.add("Mia", clip_of(2))
    path = root / "clips" / f"{broken.id}.safetensors"
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(damaged(path.read_bytes(), how))
    store = VoiceStore(str(root), MODEL)
    with pytest.raises(VoiceUnusable, match='"Anna" is missing or damaged') as caught:
        store.clip(store.get("Anna"))
    assert str(root) not in str(caught.value)
    assert same_bits(store.clip(whole), clip_of(2))
    assert same_bits(store.codes(broken.content), codes_of(1))
    store.delete("Anna")
    assert same_bits(store.clip(store.add("Anna", clip_of(1))), clip_of(1))


@pytest.mark.parametrize("how", ["cut", "flipped", "empty", "text", "other content"])
def test_a_damaged_object_makes_one_voice_unusable(how):
    url = f"memory://{uuid.uuid4()}"
    store = VoiceStore(url, MODEL)
    store.add("Anna", clip_of(1))
    memory, folder = fsspec.core.url_to_fs(f"{url}/voices")
    (path,) = memory.ls(folder, detail=False)
    whole = store.add("Mia", clip_of(2))
    data = memory.cat_file(path)
    memory.pipe_file(path, b"\x02" + bytes(7) + b"{}" if how == "other content" else damaged(data, how))
    store = VoiceStore(url, MODEL)
    with pytest.raises(VoiceUnusable):
        store.clip(store.get("Anna"))
    assert "Mia" in stored_names(store)
    assert same_bits(store.clip(whole), clip_of(2))
    with pytest.raises(VoiceTaken):
        store.add("Anna", clip_of(1))
    store.delete("Anna")
    assert same_bits(store.clip(store.add("Anna", clip_of(1))), clip_of(1))


@pytest.mark.parametrize("how", ["cut", "flipped", "empty", "text"])
def test_damaged_codes_are_made_again(root, how):
    store = VoiceStore(str(root), MODEL)
    voice = store.add("Anna", clip_of(1), codes=codes_of(1))
    (path,) = (root / "codes").glob("*/*")
    path.write_bytes(damaged(path.read_bytes(), how))
    assert store.codes(voice.content) is None
    store.keep_codes(voice, codes_of(1))
    assert same_bits(store.codes(voice.content), codes_of(1))


def test_a_store_of_another_version_is_refused_untouched(root):
    store = VoiceStore(str(root), MODEL)
    store.add("Anna", clip_of(1))
    with closing(sqlite3.connect(root / "voices.sqlite3")) as connection:
        connection.execute("PRAGMA user_version = 2")
    before = [(name, (root / name).read_bytes()) for name in files_of(root)]
    for call in (lambda: VoiceStore(str(root), MODEL), lambda: store.get("Anna"), lambda: store.add("Mia", clip_of(1))):
        with pytest.raises(VoiceStoreError, match=r"another version.*schema 2, not 1"):
            call()
    assert [(name, (root / name).read_bytes()) for name in files_of(root)] == before


@pytest.mark.parametrize("content", [b'{"schema": 2}', b"[]", b"", b"{"])
def test_objects_of_another_version_are_refused(content):
    url = f"memory://{uuid.uuid4()}"
    VoiceStore(url, MODEL)
    memory, folder = fsspec.core.url_to_fs(url)
    memory.pipe_file(f"{folder}/voices.json", content)
    with pytest.raises(VoiceStoreError, match=r"another version|voices\.json"):
        VoiceStore(url, MODEL)


def test_a_lost_index_is_no_reason_to_delete_the_clips(root):
    VoiceStore(str(root), MODEL).add("Anna", clip_of(1))
    (root / "voices.sqlite3").unlink()
    with pytest.raises(VoiceStoreError, match="index is gone"):
        VoiceStore(str(root), MODEL)
    assert [name for name in files_of(root) if name.startswith("clips/")]


def test_a_damaged_index_or_a_directory_that_goes_away_is_reported(root):
    store = VoiceStore(str(root), MODEL)
    (root / "voices.sqlite3").write_bytes(b"no database" * 1000)
    for call in (lambda: VoiceStore(str(root), MODEL), lambda: store.get("Anna")):
        with pytest.raises(VoiceStoreError, match="cannot be read or written") as caught:
            call()
        assert isinstance(caught.value.__cause__, sqlite3.DatabaseError)
    root.rename(root.with_name("elsewhere"))
    with pytest.raises(VoiceStoreError, match="cannot be read or written"):
        store.get("Anna")
    assert not root.exists()


def test_places_that_cannot_be_opened_are_reported(tmp_path):
    (tmp_path / "file").write_text("")
    for url in ["nosuchprotocol://x", str(tmp_path / "file")]:
        with pytest.raises(VoiceStoreError):
            VoiceStore(url, MODEL)


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_a_directory_may_have_any_name(tmp_path, prefix):
    root = tmp_path / "a b?mode=ro#ü%41"
    VoiceStore(f"{prefix}{root}", MODEL).add("Anna", clip_of(1))
    assert (root / "voices.sqlite3").exists()


class RetryingStore(MemoryFileSystem):
    """Like S3 over a poor network: a lost race is some OSError, and so may be an upload that succeeded unseen."""

    protocol = "retrying"
    store: ClassVar = {}
    pseudo_dirs: ClassVar = [""]

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        if mode == "create":
            with suppress(FileExistsError):
                super().pipe_file(path, value, mode=mode)
            raise OSError(errno.EINVAL, "At least one of the pre-conditions you specified did not hold")
        super().pipe_file(path, value)

    @classmethod
    def _strip_protocol(cls, path):
        return MemoryFileSystem._strip_protocol(path.removeprefix(f"{cls.protocol}://"))


def test_what_lies_in_the_object_store_decides_an_upload(monkeypatch):
    fsspec.register_implementation("retrying", RetryingStore, clobber=True)
    url = f"retrying://{uuid.uuid4()}"
    first, second = VoiceStore(url, MODEL), VoiceStore(url, MODEL)
    voice = first.add("Anna", clip_of(1))
    # Its listing was taken before the other's upload.
    monkeypatch.setattr(second._place, "_voice_paths", list)
    with pytest.raises(VoiceTaken):
        second.add("Anna", clip_of(2))
    assert second.get("Anna") == voice
    assert same_bits(second.clip(voice), clip_of(1))


class HesitantStore(RetryingStore):
    """Looks whether there is a file, then writes: what fsspec does where a file system has no create-if-absent."""

    protocol = "hesitant"
    store: ClassVar = {}
    pseudo_dirs: ClassVar = [""]

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        if mode == "create" and self.exists(path):
            raise FileExistsError(path)
        time.sleep(0.02)
        super().pipe_file(path, value)


def test_threads_of_one_replica_need_no_create_if_absent_of_the_file_system():
    fsspec.register_implementation("hesitant", HesitantStore, clobber=True)
    test_of_threads_that_upload_at_once_exactly_one_does(f"hesitant://{uuid.uuid4()}")


@pytest.mark.parametrize("clip", [np.zeros(5, np.float32), np.zeros((2, 5)), np.zeros((2, 5), np.int16)])
def test_clips_of_another_kind_are_a_mistake_of_the_caller(tmp_path, clip):
    with pytest.raises(ValueError, match="float32"):
        VoiceStore(str(tmp_path), MODEL).add("Anna", clip)

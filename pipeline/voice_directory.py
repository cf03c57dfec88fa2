"""Voices in a directory that replicas may share, on this machine or mounted: files, and an index in SQLite.

    voices.sqlite3                       which voices there are: what is not in it does not exist
    clips/<id>.safetensors               a voice's file
    codes/<model>/<content>.safetensors  codes of clips, by what the clip holds

The index has a rollback journal, not a write-ahead log: the log's index is memory shared by its users, which does not
reach over a network file system, while the journal needs only the locks that such file systems offer.

Whatever writes holds the index's write lock while it does, and writes files before the row that counts them. So a crash
leaves at most files without a row, and under the lock every such file is garbage: sweeping needs no clock. Looking
voices up goes on meanwhile, but for the moment of the commit. The system frees a killed process's lock.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from pipeline.voice import Voice, VoiceStoreError, too_many_voices, voice_taken

_SCHEMA = 1
_BUSY_SECONDS = 30.0
_COLUMNS = "name, created, content, transcript, description, id"
_SUFFIX = ".safetensors"
_PART = ".part"


class VoiceDirectory:
    """Opens the directory, made if need be, and clears it of what a crash left. Threads may share it.

    No connection outlives a call: it survives forks and pickling, and what other processes did is seen at once.
    """

    def __init__(self, root: Path):
        self._index = root / "voices.sqlite3"
        self._clips = root / "clips"
        self._codes = root / "codes"
        with _failures():
            self._clips.mkdir(parents=True, exist_ok=True)
            self._codes.mkdir(exist_ok=True)
        self._create_index()
        self._sweep()

    def find(self, key: str) -> Voice | None:
        """The voice whose name has that key."""
        with self._connection() as connection:
            row = connection.execute(f"SELECT {_COLUMNS} FROM voices WHERE key = ?", [key]).fetchone()
        return Voice(*row) if row else None

    def voices(self) -> list[Voice]:
        """All, in the order in which they came."""
        with self._connection() as connection:
            rows = connection.execute(f"SELECT {_COLUMNS} FROM voices ORDER BY sequence").fetchall()
        return [Voice(*row) for row in rows]

    def count(self) -> int:
        with self._connection() as connection:
            return connection.execute("SELECT count(*) FROM voices").fetchone()[0]

    def add(self, voice: Voice, data: bytes, limit: int) -> None:
        """Stores a voice and its file. Raises VoiceTaken, or VoiceLimit where there are `limit` voices already."""
        with self._writing() as connection:
            names = [key for (key,) in connection.execute("SELECT key FROM voices")]
            if voice.key in names:
                raise voice_taken(voice.name)
            if len(names) >= limit:
                raise too_many_voices(limit)
            _write_file(self._clip_path(voice), data)
            connection.execute(
                f"INSERT INTO voices (key, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
                [voice.key, voice.name, voice.created, voice.content, voice.transcript, voice.description, voice.id],
            )

    def remove(self, key: str) -> bool:
        """Whether there was such a voice; its files go, but for codes that another voice shares."""
        with self._writing() as connection:
            removed = connection.execute("DELETE FROM voices WHERE key = ?", [key]).rowcount
        # Once the row is gone for good: a crash in between leaves files without a voice, never the reverse.
        if removed:
            self._sweep()
        return bool(removed)

    def read(self, voice: Voice) -> bytes | None:
        """A voice's file, or None if it is gone."""
        return _read_file(self._clip_path(voice))

    def read_codes(self, model: str, content: str) -> bytes | None:
        return _read_file(self._codes_path(model, content))

    def write_codes(self, model: str, voice: Voice, data: bytes) -> None:
        """Stores the codes of a voice's clip, unless the voice has been deleted."""
        with self._writing() as connection:
            if connection.execute("SELECT 1 FROM voices WHERE id = ?", [voice.id]).fetchone():
                _write_file(self._codes_path(model, voice.content), data)

    def _clip_path(self, voice: Voice) -> Path:
        return self._clips / (voice.id + _SUFFIX)

    def _codes_path(self, model: str, content: str) -> Path:
        return self._codes / model / (content + _SUFFIX)

    def _create_index(self) -> None:
        with self._opened("rwc") as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            if _version(connection) == 0:
                if any(self._clips.glob("*" + _SUFFIX)):
                    raise VoiceStoreError(
                        f"{self._clips} holds voices but their index is gone: restore {self._index}, "
                        "or move the clips away to start anew"
                    )
                connection.execute(
                    "CREATE TABLE voices (sequence INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, name TEXT NOT NULL, "
                    "created INTEGER NOT NULL, content TEXT NOT NULL, transcript TEXT, description TEXT, "
                    "id TEXT NOT NULL UNIQUE)"
                )
                connection.execute(f"PRAGMA user_version = {_SCHEMA}")

    def _sweep(self) -> None:
        """Removes the files that no voice has: of deleted voices, and what a crash left."""
        with self._writing() as connection:
            rows = connection.execute("SELECT id, content FROM voices").fetchall()
            clips = {voice_id + _SUFFIX for voice_id, _ in rows}
            codes = {content + _SUFFIX for _, content in rows}
            garbage = [path for path in self._clips.iterdir() if path.name not in clips]
            garbage += [path for path in self._codes.glob("*/*") if path.name not in codes]
            for path in garbage:
                if path.suffix in (_SUFFIX, _PART):  # network file systems have files of their own in directories
                    path.unlink()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction with the write lock, committed at the end and undone by an exception."""
        with self._connection() as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        with self._opened("rw") as connection:
            version = _version(connection)
            if version != _SCHEMA:
                message = f"the voices were stored by another version of this server (schema {version}, not {_SCHEMA})"
                raise VoiceStoreError(message)
            yield connection

    @contextmanager
    def _opened(self, mode: str) -> Iterator[sqlite3.Connection]:
        uri = f"{self._index.as_uri()}?mode={mode}"
        with (
            _failures(),
            closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)) as connection,
        ):
            # EXTRA: also the journal's removal is on disk, so that what was answered survives a power cut.
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("PRAGMA secure_delete = ON")  # a deleted voice's texts do not stay in free pages
            yield connection


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise VoiceStoreError(f"the voice store cannot be read or written ({type(error).__name__})") from error


def _version(connection: sqlite3.Connection) -> int:
    return connection.execute("PRAGMA user_version").fetchone()[0]


def _read_file(path: Path) -> bytes | None:
    with _failures():
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None


def _write_file(path: Path, data: bytes) -> None:
    """Whole or not at all, also after a power cut. One writer at a time."""
    path.parent.mkdir(exist_ok=True)
    part = path.with_suffix(_PART)
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)

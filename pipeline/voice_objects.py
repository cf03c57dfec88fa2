"""Voices on any file system that fsspec knows, made for object stores: no index, a voice is one object.

    voices.json                          the version of this layout
    voices/<key>.safetensors             a voice's file, named by the SHA-256 of its name's key
    codes/<model>/<content>.safetensors  codes of clips, by what the clip holds

An object store shows an object whole or not at all, so there is nothing to repair after a crash. Two uploads of one
name are decided by the store's create-if-absent (S3, GCS, Azure, and one process's memory have it). Where fsspec has
none, as over SFTP, the later of two simultaneous uploads may replace the earlier, and a reader may meet half a file,
which counts as unusable; a mounted directory is better served by VoiceDirectory. The limit on the number of voices is
not exact under simultaneous uploads.
"""

import hashlib
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs

from pipeline.voice import Voice, VoiceStoreError, VoiceUnusable, too_many_voices, voice_taken
from pipeline.voice_files import HEAD_BYTES, unpack_voice

_SCHEMA = {"schema": 1}
_adding = threading.Lock()
"""Makes create-if-absent atomic at least among the threads of a process, whatever the file system."""

_log = logging.getLogger(__name__)


class VoiceObjects:
    """Opens the place that `url` names, and clears it of codes that no voice has. Threads may share it.

    The file system is asked for anew by each call (fsspec keeps it, per process): it survives forks and pickling.
    """

    def __init__(self, url: str):
        self._url = url
        self._root = url_to_fs(url)[1].rstrip("/")
        self._check_schema()
        self._sweep()

    def find(self, key: str) -> Voice | None:
        """The voice whose name has that key. Raises VoiceUnusable if its header is damaged."""
        head = self._read(self._voice_path(key), HEAD_BYTES)
        if head is None:
            return None
        try:
            return unpack_voice(head)
        except ValueError as error:
            raise VoiceUnusable("what is stored of this voice is damaged; delete and upload it again") from error

    def voices(self) -> list[Voice]:
        """All, in the order in which they came; those with damaged headers are left out and logged."""
        voices = []
        paths = self._voice_paths()
        with _failures():
            heads = self._fs.cat_ranges(paths, 0, HEAD_BYTES, on_error="return")
        for path, head in zip(paths, heads, strict=True):
            if isinstance(head, FileNotFoundError):  # deleted meanwhile
                continue
            if isinstance(head, BaseException):
                raise VoiceStoreError("a voice cannot be read") from head
            try:
                voices.append(unpack_voice(head))
            except ValueError:
                _log.warning("the voice at %s is damaged and left out", path, exc_info=True)
        return sorted(voices, key=lambda voice: (voice.created, voice.key))

    def count(self) -> int:
        return len(self._voice_paths())

    def add(self, voice: Voice, data: bytes, limit: int) -> None:
        """Stores a voice and its file. Raises VoiceTaken, or VoiceLimit where there are `limit` voices already."""
        path = self._voice_path(voice.key)
        with _adding:
            paths = self._voice_paths()
            if path in paths:
                raise voice_taken(voice.name)
            if len(paths) >= limit:
                raise too_many_voices(limit)
            failure = self._create(path, data)
        # What lies there decides: file systems report a lost race in their own ways, and a repeated request
        # that had succeeded unseen looks like one.
        stored = self.find(voice.key)
        if stored is None:
            raise VoiceStoreError("the voice could not be stored") from failure
        if stored.id != voice.id:
            raise voice_taken(voice.name)

    def remove(self, key: str) -> bool:
        """Whether there was such a voice; its files go, but for codes that another voice shares."""
        path = self._voice_path(key)
        if self._read(path, 1) is None:  # object stores do not say whether what they removed was there
            return False
        self._remove(path)
        self._sweep()
        return True

    def read(self, voice: Voice) -> bytes | None:
        """The file of the voice that has this voice's name now, or None if there is none."""
        return self._read(self._voice_path(voice.key))

    def read_codes(self, model: str, content: str) -> bytes | None:
        return self._read(self._codes_path(model, content))

    def write_codes(self, model: str, voice: Voice, data: bytes) -> None:
        """Stores the codes of a voice's clip, unless the voice has been deleted."""
        path = self._codes_path(model, voice.content)
        with _failures():
            self._fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
            self._fs.pipe_file(path, data)
        # Checked after writing: of this and a deletion, whichever comes last removes the codes.
        stored = self.find(voice.key)
        if stored is None or stored.content != voice.content:
            self._sweep()

    @property
    def _fs(self) -> AbstractFileSystem:
        return url_to_fs(self._url)[0]

    def _voice_path(self, key: str) -> str:
        return f"{self._root}/voices/{hashlib.sha256(key.encode()).hexdigest()}.safetensors"

    def _codes_path(self, model: str, content: str) -> str:
        return f"{self._root}/codes/{model}/{content}.safetensors"

    def _voice_paths(self) -> list[str]:
        return self._paths(f"{self._root}/voices")

    def _paths(self, folder: str) -> list[str]:
        """The files under a folder, as they are now."""
        fs = self._fs
        fs.invalidate_cache()  # fsspec remembers listings; other replicas change them
        with _failures():
            return fs.find(folder)

    def _check_schema(self) -> None:
        path = f"{self._root}/voices.json"
        data = self._read(path)
        if data is None:
            with _failures():
                self._fs.makedirs(f"{self._root}/voices", exist_ok=True)
                self._fs.pipe_file(path, json.dumps(_SCHEMA).encode())
            return
        try:
            schema = json.loads(data)
        except ValueError as error:
            raise VoiceStoreError("voices.json, which tells the version of the stored voices, is damaged") from error
        if schema != _SCHEMA:
            message = f"the voices were stored by another version of this server ({schema}, not {_SCHEMA})"
            raise VoiceStoreError(message)

    def _sweep(self) -> None:
        """Removes the codes that no voice has."""
        paths = self._paths(f"{self._root}/codes")  # before the voices: codes are only written once their voice is
        if not paths:
            return
        used = {f"{voice.content}.safetensors" for voice in self.voices()}
        for path in paths:
            if path.rsplit("/", 1)[-1] not in used:
                self._remove(path)

    def _read(self, path: str, size: int | None = None) -> bytes | None:
        """The file, or its first `size` bytes; None if there is none."""
        with _failures():
            try:
                return self._fs.cat_file(path, start=None if size is None else 0, end=size)
            except FileNotFoundError:
                return None

    def _create(self, path: str, data: bytes) -> OSError | None:
        """Writes a new file, or says what came of it instead."""
        try:
            self._fs.pipe_file(path, data, mode="create")
        except OSError as error:
            return error
        return None

    def _remove(self, path: str) -> None:
        with _failures():
            try:
                self._fs.rm_file(path)
            except FileNotFoundError:
                return


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise VoiceStoreError(f"the voice store cannot be read or written ({type(error).__name__})") from error

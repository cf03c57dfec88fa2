"""The uploaded voices of a server, kept over restarts and shared by all its replicas."""

import hashlib
import logging
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from pipeline.errors import InvalidRequest
from pipeline.reference import content_key
from pipeline.voice import (
    Voice,
    VoiceProtected,
    VoiceStoreError,
    VoiceUnknown,
    VoiceUnusable,
    checked_name,
    checked_texts,
    name_key,
    too_many_voices,
    voice_taken,
)
from pipeline.voice_directory import VoiceDirectory
from pipeline.voice_files import pack_codes, pack_voice, unpack_clip, unpack_codes
from pipeline.voice_objects import VoiceObjects

_log = logging.getLogger(__name__)


class VoiceStore:
    """Voices by name, with their clips and the clips' codes for one model.

    `url`: a directory, or anything fsspec opens (`s3://...`); `model_key` tells the codec's weights and settings from
    all others, since codes are of use to one codec only; `reserved` are the names of built-in voices and their aliases.

    Nothing is remembered between calls, so every replica sees uploads and deletions at once, and a voice uploaded again
    under its name never sounds like the one before. Calls block and may come from any thread. All of them may raise
    VoiceStoreError.
    """

    def __init__(self, url: str, model_key: str, *, reserved: Iterable[str] = (), max_voices: int = 1_000):
        self._model = hashlib.sha256(model_key.encode()).hexdigest()[:32]
        self._reserved = frozenset(map(name_key, reserved))
        self._max_voices = max_voices
        self._place = _place(url)

    def voices(self) -> list[Voice]:
        """All uploaded voices, in the order in which they came."""
        return self._place.voices()

    def get(self, name: str) -> Voice:
        """The uploaded voice of that name, whatever its case. Raises VoiceUnknown, or VoiceUnusable if damaged."""
        voice = self._place.find(_key(name))
        if voice is None:
            raise VoiceUnknown("there is no uploaded voice of this name")
        return voice

    def check_new(self, name: str, *, transcript: str | None = None, description: str | None = None) -> None:
        """Raises what `add` would raise for the name and texts, before any work is spent on the clip."""
        name = self._checked_new(name)
        checked_texts(transcript, description)
        if self._place.find(name_key(name)) is not None:
            raise voice_taken(name)
        if self._place.count() >= self._max_voices:
            raise too_many_voices(self._max_voices)

    def add(
        self,
        name: str,
        clip: np.ndarray,
        *,
        transcript: str | None = None,
        description: str | None = None,
        codes: np.ndarray | None = None,
    ) -> Voice:
        """Stores a voice; of several at once with one name, exactly one is.

        `clip`: as prepared for the encoder, float32 `[channels, samples]`; `codes`: of the clip, where known already,
        int64 `[frames, n_vq]`. Raises InvalidRequest for a name or text that is not allowed, VoiceProtected, VoiceTaken
        and VoiceLimit. When it returns, the voice is on disk.
        """
        if clip.dtype != np.float32 or clip.ndim != 2:
            raise ValueError(f"a clip is float32 [channels, samples], not {clip.dtype} {list(clip.shape)}")
        voice = Voice(
            name=self._checked_new(name),
            created=int(time.time()),
            content=content_key(clip),
            **checked_texts(transcript, description),
        )
        self._place.add(voice, pack_voice(voice, clip), self._max_voices)
        if codes is not None:
            self.keep_codes(voice, codes)
        return voice

    def delete(self, name: str) -> None:
        """From now on nobody finds the voice. Raises VoiceUnknown, and VoiceProtected for a built-in one."""
        if self._place.remove(_key(name)):
            return
        if name_key(name) in self._reserved:
            raise VoiceProtected("this voice is built in and cannot be deleted")
        raise VoiceUnknown("there is no uploaded voice of this name")

    def clip(self, voice: Voice) -> np.ndarray:
        """The clip, float32 `[channels, samples]`. Raises VoiceUnknown if the voice is gone, else VoiceUnusable."""
        try:
            data = self._place.read(voice)
            if data is None:
                raise ValueError("the file is gone")
            return unpack_clip(data, voice.content)
        except ValueError as error:
            if self.get(voice.name).id != voice.id:
                raise VoiceUnknown("this voice has been deleted meanwhile") from None
            message = f'what is stored of the voice "{voice.name}" is missing or damaged; delete and upload it again'
            raise VoiceUnusable(message) from error

    def codes(self, content: str) -> np.ndarray | None:
        """The codes for this model of the clip with that `content_key`, int64 `[frames, n_vq]`.

        Any clip's, whatever it is called: it need only equal a stored voice's. None if none are kept whole.
        """
        data = self._place.read_codes(self._model, content)
        if data is None:
            return None
        try:
            return unpack_codes(data)
        except ValueError:
            _log.warning("the stored codes of clip %s are damaged and have to be made again", content, exc_info=True)
            return None

    def keep_codes(self, voice: Voice, codes: np.ndarray) -> None:
        """Shares the codes of a voice's clip, int64 `[frames, n_vq]`, with all voices of equal clips and all replicas.

        Of a voice deleted meanwhile nothing is kept.
        """
        if codes.dtype != np.int64 or codes.ndim != 2:
            raise ValueError(f"codes are int64 [frames, n_vq], not {codes.dtype} {list(codes.shape)}")
        self._place.write_codes(self._model, voice, pack_codes(codes))

    def _checked_new(self, name: str) -> str:
        name = checked_name(name)
        if name_key(name) in self._reserved:
            raise VoiceProtected(f'"{name}" is the name of a built-in voice; choose another one')
        return name


def _place(url: str) -> VoiceDirectory | VoiceObjects:
    try:
        fs, path = url_to_fs(url)
    except (ValueError, ImportError) as error:
        raise VoiceStoreError(f"voices cannot be stored at {url}: {error}") from error
    return VoiceDirectory(Path(path)) if isinstance(fs, LocalFileSystem) else VoiceObjects(url)


def _key(name: str) -> str:
    try:
        return name_key(checked_name(name))
    except InvalidRequest:
        raise VoiceUnknown("there is no uploaded voice of this name") from None

"""The voices of a server: built-in ones, and uploads kept in a store that all replicas share."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import numpy as np

from deployments.http_errors import ApiError, bad_request, voice_not_found
from deployments.served import DEFAULT_VOICE, OPENAI_VOICES
from pipeline.reference import ClipCache, content_key
from pipeline.voice import Voice, VoiceUnknown, name_key
from pipeline.voices import VoiceStore


class Voices:
    """`of_model`: codes int64 `[frames, n_vq]` of the voices that the model brings along beside its own, by name.

    `encode` gives the codes of a prepared clip, int64 `[frames, n_vq]`. Without a store nothing can be uploaded.
    """

    def __init__(
        self,
        of_model: Mapping[str, np.ndarray],
        store: VoiceStore | None,
        clips: ClipCache,
        encode: Callable[[np.ndarray], Awaitable[np.ndarray]],
    ):
        self.built_in = {DEFAULT_VOICE: None, **of_model}
        self._store = store
        self._clips = clips
        self._encode = encode

    def built_in_name(self, name: str) -> str | None:
        """The name of the built-in voice that `name` means, in any case; None if it means none."""
        key = name_key(name)
        return next((each for each in self.built_in if name_key(each) == key), None)

    def uploaded(self) -> list[Voice]:
        return [] if self._store is None else self._store.voices()

    def get(self, name: str) -> Voice:
        """An uploaded voice. Raises ApiError 404 naming the voices there are."""
        try:
            return self._needed().get(name)
        except VoiceUnknown:
            raise self._not_found(name) from None

    def delete(self, name: str) -> None:
        try:
            self._needed().delete(name)
        except VoiceUnknown:
            raise self._not_found(name) from None

    async def add(self, data: bytes, *, name: str, ref_text: str | None, description: str | None) -> Voice:
        """Checks, encodes and stores a clip. Raises what `VoiceStore.add` and the clip's checks raise."""
        store = self._needed()
        texts = {"transcript": ref_text, "description": description}
        await asyncio.to_thread(lambda: store.check_new(name, **texts))
        clip = await asyncio.to_thread(self._clips.prepared, data)
        codes = await asyncio.to_thread(store.codes, content_key(clip))
        if codes is None:
            codes = await self._encode(clip)
        return await asyncio.to_thread(lambda: store.add(name, clip, codes=codes, **texts))

    async def codes(self, name: str) -> np.ndarray | None:
        """The codes to speak with: None for the model's own voice. Raises ApiError 404 naming the voices there are."""
        built_in = self.built_in_name(name)
        if built_in is not None:
            return self.built_in[built_in]
        voice = await asyncio.to_thread(self._find, name)
        if voice is None:
            return None
        codes = await asyncio.to_thread(self._store.codes, voice.content)
        if codes is None:  # of another model, or damaged: made again, for all
            codes = await self._encode(await asyncio.to_thread(self._store.clip, voice))
            await asyncio.to_thread(self._store.keep_codes, voice, codes)
        return codes

    def _find(self, name: str) -> Voice | None:
        """None for the names of OpenAI's voices, which stand for the default one."""
        try:
            if self._store is not None:
                return self._store.get(name)
        except VoiceUnknown:
            pass
        if name_key(name) in OPENAI_VOICES:
            return None
        raise self._not_found(name)

    def _needed(self) -> VoiceStore:
        if self._store is None:
            raise bad_request("this server keeps no voices: its configuration names no voices.store")
        return self._store

    def _not_found(self, name: str) -> ApiError:
        known = [*self.built_in, *(voice.name for voice in self.uploaded()), *OPENAI_VOICES]
        return voice_not_found(name, known)

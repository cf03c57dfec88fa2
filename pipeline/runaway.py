"""Notices speech that has lost its way: a model that repeats itself for ever, or goes silent and does not stop.

What it sees is a function of the frames, looked at one by one, so where a request is cut does not depend on timing or
on how its frames came in chunks.
"""

from dataclasses import dataclass, field

import numpy as np

SILENT_PEAK = 10 ** (-60 / 20)
"""-60 dBFS: below any breath."""
LONGEST_SILENCE = 8.0
"""s. The longest pause that a text may ask for by itself is added to it."""
LONGEST_PERIOD = 8
"""frames: a loop of up to 0.64 s. Longer ones are words that may well be said again."""
LONGEST_LOOP = 4.0
"""s that a loop may last. No vowel is held for so long with the very same codes."""


@dataclass
class RunawayWatch:
    """Looks at the frames of one utterance as they come. `pause`: s, the longest `[pause ..]` in its text."""

    frame_seconds: float
    pause: float = 0.0
    _silent: int = 0
    _codes: list[bytes] = field(default_factory=list)
    _repeats: list[int] = field(default_factory=lambda: [0] * LONGEST_PERIOD)

    def good_frames(self, codes: np.ndarray, samples: np.ndarray) -> int:
        """How many of these frames to keep: all, unless one of them shows a runaway; that one is the first to go.

        codes: int64 `[frames, n_vq]`. samples: float32 `[channels, frames * samples per frame]`.
        """
        if len(codes) == 0:
            return 0
        peaks = np.abs(samples.reshape(len(samples), len(codes), -1)).max(axis=(0, 2))
        for index, (frame, peak) in enumerate(zip(codes, peaks, strict=True)):
            if self._is_silent_for_too_long(float(peak)) or self._goes_round(frame.tobytes()):
                return index
        return len(codes)

    def _is_silent_for_too_long(self, peak: float) -> bool:
        self._silent = self._silent + 1 if peak < SILENT_PEAK else 0
        return self._silent * self.frame_seconds > LONGEST_SILENCE + self.pause

    def _goes_round(self, frame: bytes) -> bool:
        """Whether the frames have been the same as those of `period` frames ago for too long, for some period."""
        for period in range(1, LONGEST_PERIOD + 1):
            same = len(self._codes) >= period and self._codes[-period] == frame
            self._repeats[period - 1] = self._repeats[period - 1] + 1 if same else 0
        self._codes = [*self._codes[1 - LONGEST_PERIOD :], frame]
        return max(self._repeats) * self.frame_seconds > LONGEST_LOOP and self._silent == 0

"""Parts of one text, spoken one after the other, as one stretch of speech: no click and no long gap between them."""

import numpy as np

FADE_SECONDS = 0.005
"""Each side of a join goes to zero within this time: what the parts begin and end with need not fit together."""
QUIET_PEAK = 10 ** (-50 / 20)
"""-50 dBFS: what lies below it next to a join is part of the gap."""
LONGEST_TAIL, LONGEST_LEAD = 0.25, 0.1
"""s of quiet kept after one part and before the next: together the pause between two sentences."""


class Joiner:
    """Takes the audio of the parts in order, chunk by chunk, and gives what can be sent.

    float32 `[channels, samples]` in and out. Quiet samples and the last few are held back until it is known whether
    they lie at a join. The joined output does not depend on how the parts were cut into chunks. The beginning of the
    first part and the end of the last one stay as they are.
    """

    def __init__(self, rate: int, channels: int):
        self._fade = round(FADE_SECONDS * rate)
        self._tail, self._lead = round(LONGEST_TAIL * rate), round(LONGEST_LEAD * rate)
        self._held = np.zeros((channels, 0), dtype=np.float32)
        self._leading = False

    def write(self, chunk: np.ndarray) -> np.ndarray:
        held = np.concatenate((self._held, chunk), axis=1)
        if self._leading:
            held = self._begun(held)
        sounding = _last_sounding(held)
        ready = 0 if self._leading else max(min(sounding, held.shape[1] - self._fade), 0)
        self._held = held[:, ready:]
        return held[:, :ready]

    def next_part(self) -> np.ndarray:
        """The end of a part that another one follows."""
        end = self._held[:, : _last_sounding(self._held) + self._tail].copy()
        self._held = self._held[:, :0]
        self._leading = True
        _fade(end[:, ::-1], self._fade)
        return end

    def finish(self) -> np.ndarray:
        """The end of the last part."""
        rest, self._held = self._held, self._held[:, :0]
        return rest

    def _begun(self, held: np.ndarray) -> np.ndarray:
        """The part from shortly before its first sound, faded in; all of it while nothing has sounded yet."""
        sound = np.abs(held).max(axis=0) >= QUIET_PEAK
        if not sound.any() or held.shape[1] < self._fade:
            return held
        held = held[:, max(int(sound.argmax()) - self._lead, 0) :].copy()
        if held.shape[1] < self._fade:
            return held
        _fade(held, self._fade)
        self._leading = False
        return held


def _last_sounding(samples: np.ndarray) -> int:
    """How many samples there are up to the last one that sounds."""
    sound = np.abs(samples).max(axis=0, initial=0.0) >= QUIET_PEAK
    return samples.shape[1] - int(sound[::-1].argmax()) if sound.any() else 0


def _fade(samples: np.ndarray, count: int) -> None:
    """Raises the first `count` samples from zero, in place."""
    count = min(count, samples.shape[1])
    samples[:, :count] *= np.linspace(0, 1, count, endpoint=False, dtype=np.float32)

"""Speech faster or slower at its own pitch."""

import numpy as np


class Tempo:
    """Streams float32 `[channels, samples]` at `speed` times its tempo, with its pitch; the identity for 1.

    WSOLA (Verhelst and Roelands, ICASSP 1993): the output is made of stretches of the input. Each is taken near
    its due place, where it is most like the natural continuation of the one before, and fades in over that.

    N samples in give `round(N / speed)` out, from the first of the input to the last. The joined output has the
    same bits for any cut of the input. At most 120 ms of input (55 ms for speeds up to 1) wait for more or for
    `flush`. Samples must be finite.
    """

    def __init__(self, rate: int, channels: int, speed: float):
        self._speed = speed
        self._length, self._tolerance = rate * 15 // 1000, rate * 10 // 1000
        self._input = np.zeros((channels, 0), dtype=np.float32)
        self._input_start = 0
        self._made = 0
        self._continuation = 0

    def process(self, chunk: np.ndarray) -> np.ndarray:
        """What can be told so far: those stretches that no further input could change."""
        if self._speed == 1:
            return chunk
        self._input = np.concatenate([self._input, chunk], axis=1)
        seen = self._input_start + self._input.shape[1]
        parts = [self._input[:, :0]]
        while self._is_followed(seen) and self._due(seen) + self._tolerance <= self._latest(seen):
            parts.append(self._next_stretch(seen))
        self._forget(seen)
        return np.concatenate(parts, axis=1)

    def flush(self) -> np.ndarray:
        """The rest. To be called once, after the last chunk."""
        if self._speed == 1:
            return self._input
        end = self._input_start + self._input.shape[1]
        self._input = np.pad(self._input, ((0, 0), (0, 3 * self._length)))
        parts = []
        while self._is_followed(end):
            parts.append(self._next_stretch(end))
        rest = round(end / self._speed) - self._made
        parts.append(self._fade_in(max(0, end - rest), rest))
        return np.concatenate(parts, axis=1)

    def _is_followed(self, end: int) -> bool:
        """Whether, for an input up to `end`, the next stretch leaves a whole one to come, which fades to the end."""
        return round(end / self._speed) - self._made >= 2 * self._length

    def _due(self, end: int) -> int:
        """Where in the input the next stretch should start, for its own end to be neither early nor late."""
        due = round(self._speed * (self._made + self._length)) - self._length
        return max(0, min(due, self._latest(end)))

    def _latest(self, end: int) -> int:
        """The last start that leaves a continuation as long as the last fade."""
        return max(0, end - 3 * self._length)

    def _next_stretch(self, end: int) -> np.ndarray:
        due = self._due(end)
        first = max(0, due - self._tolerance)
        last = min(due + self._tolerance, self._latest(end))
        region = self._samples(first, last - first + self._length)
        wanted = self._samples(self._continuation, self._length)
        return self._fade_in(first + best_match(region, wanted, due - first), self._length)

    def _fade_in(self, start: int, length: int) -> np.ndarray:
        """The stretch from `start`, faded in over the continuation of the one before."""
        before, after = self._samples(self._continuation, length), self._samples(start, length)
        weight = (0.5 - 0.5 * np.cos(np.linspace(0, np.pi, length))).astype(np.float32)
        self._continuation = start + length
        self._made += length
        return (1 - weight) * before + weight * after

    def _samples(self, start: int, length: int) -> np.ndarray:
        start -= self._input_start
        return self._input[:, start : start + length]

    def _forget(self, seen: int) -> None:
        start = max(0, min(self._continuation, self._due(seen) - self._tolerance))
        self._input = self._input[:, start - self._input_start :].copy()
        self._input_start = start


def best_match(region: np.ndarray, wanted: np.ndarray, preferred: int) -> int:
    """Offset at which float32 `region [channels, n]` is most like `wanted [channels, m]`; of equals, near `preferred`.

    The measure is the normalized cross-correlation over all channels, of samples rounded to 16 bits: sums of whole
    numbers are exact in float64, so the choice depends neither on the order of additions nor on the machine.
    """
    region, wanted = _steps(region), _steps(wanted)
    product = sum(map(np.correlate, region, wanted))
    energy = np.cumsum(np.pad((region**2).sum(axis=0), (1, 0)))
    energy = energy[wanted.shape[1] :] - energy[: -wanted.shape[1]]
    likeness = product / np.sqrt(np.maximum(energy, 1))
    best = np.flatnonzero(likeness == likeness.max())
    return int(best[np.abs(best - preferred).argmin()])


def _steps(pcm: np.ndarray) -> np.ndarray:
    return np.rint(pcm.astype(np.float64) * 32768)

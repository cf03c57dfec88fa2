"""What the listener of one streamed answer hears: a player that starts at the first chunk."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Playback:
    """Times in seconds since the request was sent, lengths in seconds."""

    first_audio: float
    finished: float
    audio: float
    underruns: int
    """times the player had nothing left to play before the end"""
    silence: float
    """how long it waited then, in total"""

    @property
    def real_time_factor(self) -> float:
        return self.finished / self.audio


def play(arrivals: Sequence[tuple[float, float]]) -> Playback:
    """`arrivals`: when each chunk came, in seconds since the request, and how many seconds of audio it holds."""
    first = played_until = arrivals[0][0]
    underruns, silence = 0, 0.0
    for arrived, audio in arrivals:
        if arrived > played_until:
            underruns += 1
            silence += arrived - played_until
            played_until = arrived
        played_until += audio
    return Playback(first, arrivals[-1][0], sum(audio for _, audio in arrivals), underruns, silence)

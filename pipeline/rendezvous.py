"""When a pass should wait for a caller that is about to come: it then takes the rows of all in one go.

Callers that are engines call, get their answer, compute, and call again. Two of them out of step make twice the
passes of half the rows. Waiting once for the later one brings them into step, and costs next to nothing from then on.
Only the grouping of rows depends on it, never a bit of an answer.
"""

import time
from collections.abc import Callable, Collection

LATE = 2.0
"""How many times as long as the last time a caller may take."""
PASSES = 3
"""How long a pass may wait at most, in passes: enough for callers that compute as long as it takes, and send."""


class Rendezvous:
    """Knows how long each caller was away between an answer and its next call. Times are in seconds of `clock`.

    One that does not come in time is not waited for until it has called twice again, so a caller that has gone delays
    others once, by at most `PASSES` passes.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._left: dict[str, float] = {}
        self._away: dict[str, float] = {}
        self._pass_seconds = 0.0

    def called(self, caller: str) -> None:
        """A call has come in."""
        left = self._left.pop(caller, None)
        if left is None:
            self._away.pop(caller, None)
        else:
            self._away[caller] = self._clock() - left

    def answered(self, callers: Collection[str], seconds: float) -> None:
        """A pass for these callers is done; it took this long."""
        self._pass_seconds = seconds
        self._left |= dict.fromkeys(callers, self._clock())

    def patience(self, present: Collection[str], since: float) -> float:
        """How much longer a pass for the callers `present`, which could have begun at `since`, should wait.

        Until all others are there that are expected before the longest wait is over.
        """
        now = self._clock()
        for caller in [each for each in self._left if now > self._due(each)]:
            del self._left[caller]
            self._away.pop(caller, None)
        latest = since + PASSES * self._pass_seconds
        due = [self._due(caller) for caller in self._left if caller in self._away and caller not in present]
        return max((each - now for each in due if each <= latest), default=0.0)

    def _due(self, caller: str) -> float:
        return self._left[caller] + LATE * self._away.get(caller, self._pass_seconds)

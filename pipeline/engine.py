"""Continuous batching: sequences join and leave between steps, and every step is one forward and one depth call.

Sequences form cohorts that take turns: while the hidden states of one are away at the depth transformer, the torch
thread computes another. Prompts are prefilled between the steps, several at a time. Blocks for a sequence's longest
possible life are reserved when it is admitted, so a running request can always finish.
"""

import asyncio
import threading
import time
import uuid
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from dataclasses import dataclass, field
from typing import Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from pipeline.attention import Span
from pipeline.backbone import Backbone
from pipeline.depth_call import DepthCall, DepthResult, RowStates, sampling_table, to_wire
from pipeline.errors import EngineStopped, InvalidRequest, ModelFailure, QueueFull
from pipeline.kv_blocks import prefix_keys
from pipeline.loop_thread import LoopThread
from pipeline.prompt import audio_rows, prompt_rows
from pipeline.random_state import export_generator, new_generator
from pipeline.request import FrameChunk, SpeechRequest
from pipeline.sampling import pack_emitted
from pipeline.sequence import Sequence
from pipeline.tokenizer import Tokenizer

T = TypeVar("T")


class Depth(Protocol):
    """Where hidden states become frames: in this process or behind a deployment."""

    async def sample(self, call: DepthCall) -> DepthResult: ...


@dataclass(frozen=True)
class EngineLimits:
    """How much one engine holds at once."""

    max_running: int = 64
    """sequences that step together"""
    max_waiting: int = 256
    """requests that wait while no slot is free, in arrival order"""
    kv_blocks: int = 1024
    block_size: int = 64
    """positions a KV block holds"""
    prefill_rows: int = 256
    """rows of prompts computed in one go; other sequences step in between"""
    cohorts: int = 2
    """groups that take turns. Two hide the depth side's time where it has a device of its own, at the price of twice
    the steps; where both compute on the same cores or steps are short, one is faster"""

    @property
    def max_cohort(self) -> int:
        """Most sequences of one step: a cohort only takes a request when it is the smallest."""
        return -(-self.max_running // self.cohorts)


@dataclass(eq=False)
class Cohort:
    """Sequences that step together, and those whose prompts are still being prefilled between their steps."""

    running: list[Sequence] = field(default_factory=list)
    joining: list[Sequence] = field(default_factory=list)
    progress: float = 0.0
    """time.monotonic() of its last finished step, or of when it last got something to do"""

    @property
    def members(self) -> list[Sequence]:
        return [*self.running, *self.joining]


class Engine:
    """Turns requests into chunks of codec frames; use one engine from one event loop, or through `generate`.

    `random` is `counter` (each draw is a function of seed, frame and codebook) or `generator` (one torch.Generator a
    request, whose state travels with the depth calls). `on_step(rows, seconds)` is told of every step.
    """

    def __init__(
        self,
        backbone: Backbone,
        tokenizer: Tokenizer,
        depth: Depth,
        limits: EngineLimits,
        random: str = "counter",
        on_step: Callable[[int, float], None] = lambda rows, seconds: None,
    ):
        self.backbone = backbone
        self.limits = limits
        self.kv = backbone.new_kv_blocks(limits.kv_blocks, limits.block_size)
        self.waiting: deque[Sequence] = deque()
        self.cohorts = [Cohort() for _ in range(limits.cohorts)]
        self._tokenizer = tokenizer
        self._depth = depth
        self._random = random
        self._name = uuid.uuid4().hex
        self.reused = 0
        """prompt rows so far that were found instead of computed"""
        self._on_step = on_step
        self._prefill_rows = min(limits.prefill_rows, backbone.rows.limit or limits.prefill_rows)
        self.config = backbone.config
        self._torch = ThreadPoolExecutor(max_workers=1, thread_name_prefix="backbone")
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task] = []
        self._stopped: str | None = None
        self._loop_thread: LoopThread | None = None
        self._loop_thread_lock = threading.Lock()

    # -- requests ----------------------------------------------------------------------------------------------

    def generate(self, request: SpeechRequest) -> Iterator[FrameChunk]:
        """`stream` for callers without an event loop; several threads may iterate at once.

        Use the engine as a context manager then, so that its threads end with it.
        """
        with self._loop_thread_lock:
            if self._loop_thread is None:
                self._loop_thread = LoopThread("engine")
        return self._loop_thread.iterate(self.stream(request))

    async def stream(self, request: SpeechRequest) -> AsyncGenerator[FrameChunk]:
        """Chunks of frames as they are made; the last one says why it ended.

        Raises InvalidRequest for a request that can never fit, QueueFull when the waiting queue is full. Closing the
        iterator cancels the request: its slot and blocks are free again after the step in flight.
        """
        sequence = await self._submit(request)
        try:
            while True:
                chunk = await sequence.chunks.get()
                if isinstance(chunk, Exception):
                    raise chunk
                yield chunk
                if chunk.finish:
                    return
        finally:
            self._cancel(sequence)

    async def _submit(self, request: SpeechRequest) -> Sequence:
        if self._tasks and self._tasks[0].get_loop() is not asyncio.get_running_loop():
            raise RuntimeError("an engine belongs to the event loop of its first request")
        self._check_room(request)
        sequence = await asyncio.to_thread(self._new_sequence, request)
        self._check_fit(sequence)
        self._check_room(request)
        if request.accepted:
            self.waiting.appendleft(sequence)
        else:
            self.waiting.append(sequence)
        if not self._tasks:
            # In an empty context: a call made in the context of one request may be cancelled with that request.
            self._tasks = [asyncio.create_task(self._run(cohort), context=Context()) for cohort in self.cohorts]
        self._changed.set()
        return sequence

    def _new_sequence(self, request: SpeechRequest) -> Sequence:
        known = prompt_rows(request.prompt, self._tokenizer, self.config)
        if request.done is not None:
            known = np.concatenate((known, audio_rows(self.config.tokens.assistant_slot, request.done)))
        generator = request.generator
        if self._random == "generator" and generator is None:
            generator = export_generator(new_generator(request.seed, self.backbone.device))
        keys = prefix_keys(known[:-1], self.limits.block_size)
        return Sequence(request, known, keys=keys, generator=generator, emitted=self._new_emitted(request))

    def _check_room(self, request: SpeechRequest) -> None:
        if self._stopped is not None:
            raise EngineStopped(self._stopped)
        held = self.running + len(self.waiting)
        if held >= self.limits.max_running + self.limits.max_waiting and not request.accepted:
            raise QueueFull(f"{len(self.waiting)} requests are waiting already")

    def _check_fit(self, sequence: Sequence) -> None:
        if sequence.at_limit:
            raise InvalidRequest(f"max_frames is {sequence.request.max_frames}: there is no frame left to make")
        most = min(self.kv.total * self.kv.block_size, self.config.backbone.max_position_embeddings)
        if sequence.positions > most:
            raise InvalidRequest(
                f"the prompt has {len(sequence.known)} rows and max_frames is {sequence.request.max_frames}: "
                f"together more than the {most} positions a request can have"
            )

    def _new_emitted(self, request: SpeechRequest) -> np.ndarray | None:
        if request.sampling.repetition_penalty == 1.0:
            return None
        return np.zeros((self.config.n_vq, max(self.config.codebook_sizes)), dtype=bool)

    def _cancel(self, sequence: Sequence) -> None:
        sequence.cancelled = True
        if sequence in self.waiting:
            self.waiting.remove(sequence)
        self._changed.set()

    # -- the loop ----------------------------------------------------------------------------------------------

    async def _run(self, cohort: Cohort) -> None:
        try:
            while True:
                while not (cohort.members or self._may_admit(cohort)):
                    self._changed.clear()
                    await self._changed.wait()
                self._retire(cohort)
                self._admit(cohort)
                if cohort.joining:
                    await self._prefill(cohort)
                if cohort.running:
                    await self._step(cohort)
        except BaseException as error:
            self._stop(f"the engine failed and cannot continue: {error!r}")
            raise

    def _may_admit(self, cohort: Cohort) -> bool:
        """Whether the head of the queue fits now, and this cohort is the smallest."""
        if not self.waiting or self.running >= self.limits.max_running:
            return False
        smallest = min(self.cohorts, key=lambda each: len(each.members))
        return cohort is smallest and self.kv.blocks_for(self.waiting[0].positions) <= self.kv.free

    def _admit(self, cohort: Cohort) -> None:
        while self._may_admit(cohort):
            if not cohort.members:
                cohort.progress = time.monotonic()
            sequence = self.waiting.popleft()
            self.kv.find(sequence.table, sequence.keys)
            self.reused += sequence.table.length
            self.kv.extend(sequence.table, sequence.positions)
            cohort.joining.append(sequence)

    async def _prefill(self, cohort: Cohort) -> None:
        """Computes the next rows of the oldest prompts; the very last row of each is fed by its first step."""
        pieces, room = [], self._prefill_rows
        for sequence in cohort.joining:
            done, last = sequence.table.length, len(sequence.known) - 1
            pieces.append((sequence, sequence.known[done : min(done + room, last)]))
            room -= len(pieces[-1][1])
            if room == 0:
                break
        pieces = [piece for piece in pieces if len(piece[1])]
        for sequence, error in await self._in_torch(self._prefill_pieces, pieces) if pieces else ():
            self._end(cohort, sequence, error)
        cohort.progress = time.monotonic()
        ready = [each for each in cohort.joining if each.table.length == len(each.known) - 1]
        for sequence in ready:
            cohort.joining.remove(sequence)
            cohort.running.append(sequence)
        self._changed.set()

    def _prefill_pieces(self, pieces: list[tuple[Sequence, np.ndarray]]) -> list[tuple[Sequence, Exception]]:
        """All pieces in one forward; where that fails, one by one. Returns what failed by itself."""
        try:
            self._forward(pieces)
        except Exception as error:  # noqa: BLE001 - the error goes to the request it belongs to
            if len(pieces) == 1:
                return [(pieces[0][0], error)]
            return [failure for piece in pieces for failure in self._prefill_pieces([piece])]
        return []

    async def _step(self, cohort: Cohort) -> None:
        """One frame for every running sequence of the cohort."""
        began = time.monotonic()
        members = list(cohort.running)
        rows = [(sequence, self._newest_row(sequence)) for sequence in members]
        try:
            hidden = await self._in_torch(self._hidden_states, rows)
            result = await self._depth.sample(self._depth_call(members, hidden))
        except Exception as error:  # noqa: BLE001 - the error goes to the requests of this step
            for sequence in members:
                self._end(cohort, sequence, error)
            return
        for row, sequence in enumerate(members):
            self._commit(cohort, sequence, row, result)
        cohort.progress = time.monotonic()
        self._on_step(len(members), cohort.progress - began)

    def _hidden_states(self, pieces: list[tuple[Sequence, np.ndarray]]) -> np.ndarray:
        """`_forward`, ready to send: waiting for an accelerator to finish is for the torch thread, too."""
        return to_wire(self._forward(pieces))

    def _forward(self, pieces: list[tuple[Sequence, np.ndarray]]) -> Tensor:
        """Feeds each sequence its next rows, int64 [rows, 1 + n_vq]; hidden states of all of them in this order."""
        spans = [Span(sequence.table, sequence.table.length, len(rows)) for sequence, rows in pieces]
        hidden = self.backbone(torch.from_numpy(np.concatenate([rows for _, rows in pieces])), spans, self.kv)
        for sequence, rows in pieces:
            sequence.table.length += len(rows)
        return hidden

    def _newest_row(self, sequence: Sequence) -> np.ndarray:
        """int64 [1, 1 + n_vq]"""
        if not sequence.frames:
            return sequence.known[-1:]
        return audio_rows(self.config.tokens.assistant_slot, sequence.frames[-1][None])

    def _depth_call(self, members: list[Sequence], hidden: np.ndarray) -> DepthCall:
        penalized = [row for row, sequence in enumerate(members) if sequence.emitted is not None]
        return DepthCall(
            hidden=hidden,
            states=RowStates(
                seeds=np.array([sequence.request.seed for sequence in members], dtype=np.int64),
                frames=np.array([len(sequence.frames) for sequence in members], dtype=np.int64),
                generators=np.stack([sequence.generator for sequence in members])
                if self._random == "generator"
                else None,
            ),
            sampling=sampling_table([sequence.request.sampling for sequence in members]),
            penalized=np.array(penalized, dtype=np.int64),
            emitted=self._emitted([members[row] for row in penalized]),
            caller=self._name,
        )

    def _emitted(self, sequences: list[Sequence]) -> np.ndarray:
        empty = np.empty((0, self.config.n_vq, max(self.config.codebook_sizes)), dtype=bool)
        return pack_emitted(np.stack([sequence.emitted for sequence in sequences]) if sequences else empty)

    def _commit(self, cohort: Cohort, sequence: Sequence, row: int, result: DepthResult) -> None:
        if result.failed[row]:
            self._end(cohort, sequence, ModelFailure("the model produced a value that is not finite"))
        elif result.stop[row]:
            sequence.finish("stop")
            self._end(cohort, sequence)
        else:
            if result.states.generators is not None:
                sequence.generator = result.states.generators[row].copy()
            self.kv.publish(sequence.table, sequence.keys)  # a finite result shows that all before it is finite
            sequence.keys = []
            sequence.append(result.codes[row].copy())
            if sequence.at_limit:
                sequence.finish("length")
                self._end(cohort, sequence)

    def _retire(self, cohort: Cohort) -> None:
        for sequence in [sequence for sequence in cohort.members if sequence.cancelled]:
            self._end(cohort, sequence)

    def _end(self, cohort: Cohort, sequence: Sequence, error: Exception | None = None) -> None:
        """Takes a sequence out and its blocks back. Only called between forwards of its cohort."""
        if error is not None:
            sequence.fail(error)
        (cohort.joining if sequence in cohort.joining else cohort.running).remove(sequence)
        self.kv.release(sequence.table, scrub=error is not None or sequence.cancelled)
        self._changed.set()

    # -- state -------------------------------------------------------------------------------------------------

    @property
    def running(self) -> int:
        return sum(len(cohort.members) for cohort in self.cohorts)

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.running)

    def stalled_seconds(self) -> float:
        """How long a cohort with work has finished no step; 0 when idle, infinite once the engine has failed."""
        if self._stopped is not None:
            return float("inf")
        return max((time.monotonic() - cohort.progress for cohort in self.cohorts if cohort.members), default=0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._loop_thread is not None:
            self._loop_thread.run(self.close())
            self._loop_thread.close()

    async def close(self) -> None:
        """Ends every request with EngineStopped and stops the loop."""
        self._stop("the engine is shut down")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self._torch.shutdown)

    def _stop(self, reason: str) -> None:
        """Ends every request, once; from then on none is taken."""
        if self._stopped is not None:
            return
        self._stopped = reason
        for sequence in [*self.waiting, *(member for cohort in self.cohorts for member in cohort.members)]:
            sequence.fail(EngineStopped(reason))

    async def _in_torch(self, function: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._torch, function, *args)

"""Text to audio in one process: the same parts that the deployments place on replicas, called directly."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Self

import torch

from pipeline.backbone import load_backbone
from pipeline.chunks import SIZE
from pipeline.codec import CodecDecoder, CodecEncoder
from pipeline.codec_service import AudioChunk, CodecService
from pipeline.config import CodecConfig, ModelConfig
from pipeline.depth import load_depth
from pipeline.depth_sampler import DepthSampler
from pipeline.determinism import Determinism, settle_backbone, settle_codec, settle_depth
from pipeline.engine import Depth, Engine, EngineLimits
from pipeline.frame_graph import FrameGraph
from pipeline.local_depth import LocalDepth
from pipeline.loop_thread import LoopThread
from pipeline.request import SpeechJob
from pipeline.tokenizer import Tokenizer


def load_engine(
    directory: Path | str,
    depth: Depth,
    limits: EngineLimits,
    *,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    determinism: Determinism = Determinism.BATCH_INVARIANT,
    **options: object,
) -> Engine:
    """The engine of a text-to-speech checkpoint; `options` as for Engine."""
    config = ModelConfig.load(directory)
    backbone = load_backbone(directory, config, dtype=dtype, device=device)
    settle_backbone(backbone, determinism, limits.max_cohort, limits.block_size)
    return Engine(backbone, Tokenizer.load(directory, config), depth, limits, **options)


def load_depth_sampler(
    directory: Path | str,
    *,
    max_rows: int,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    determinism: Determinism = Determinism.BATCH_INVARIANT,
) -> DepthSampler:
    depth = load_depth(directory, ModelConfig.load(directory), dtype=dtype, device=device)
    settle_depth(depth, determinism, max_rows)
    graph = None if depth.device.type == "cpu" else FrameGraph(depth, depth.rows.limit or max_rows)
    return DepthSampler(depth, graph)


def load_codec_service(
    directory: Path | str,
    n_vq: int,
    *,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    determinism: Determinism = Determinism.BATCH_INVARIANT,
    max_streams: int = 64,
    cache_size: int = 64,
) -> CodecService:
    config = CodecConfig.load(directory)
    placed = {"dtype": dtype, "device": device, "max_step_frames": SIZE}
    decoder = CodecDecoder.load(directory, config, max_streams=max_streams, n_vq=n_vq, **placed)
    encoder = CodecEncoder.load(directory, config, **placed)
    settle_codec(decoder, encoder, determinism)
    return CodecService(decoder, encoder, max_streams=max_streams, cache_size=cache_size)


class Speech:
    """`with Speech.load(DIR) as speech: for chunk in speech.generate(job): ...`; any number of threads may iterate."""

    def __init__(self, engine: Engine, depth: LocalDepth, codec: CodecService):
        self.engine = engine
        self.codec = codec
        self._depth = depth
        self._loop = LoopThread("speech")

    @classmethod
    def load(
        cls,
        directory: Path | str,
        *,
        limits: EngineLimits | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        determinism: Determinism = Determinism.BATCH_INVARIANT,
    ) -> Self:
        """From `directory/tts` and `directory/codec`; the codec computes in float32."""
        limits = limits or EngineLimits()
        tts, codec = Path(directory) / "tts", Path(directory) / "codec"
        placed = {"device": device, "determinism": determinism}
        depth = LocalDepth(
            load_depth_sampler(tts, max_rows=limits.max_running, dtype=dtype, **placed), limits.max_running
        )
        engine = load_engine(tts, depth, limits, dtype=dtype, **placed)
        service = load_codec_service(codec, engine.config.n_vq, dtype=torch.float32, **placed)
        return cls(engine, depth, service)

    def generate(self, job: SpeechJob) -> Iterator[AudioChunk]:
        """Audio chunk by chunk. Raises as `Engine.stream` does; closing the iterator cancels the job."""
        return self._loop.iterate(self.stream(job))

    async def stream(self, job: SpeechJob) -> AsyncGenerator[AudioChunk]:
        """`generate` for callers on the loop that everything runs on."""
        async with aclosing(self.codec.speak(job, self.engine.stream)) as audio:
            async for chunk in audio:
                yield chunk

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._loop.run(self.engine.close())
        self._depth.close()
        self.codec.close()
        self._loop.close()

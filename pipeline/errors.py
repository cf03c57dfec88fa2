"""Errors a caller can act on. Each survives pickling, so it crosses process borders with its meaning."""


class SpeechError(Exception):
    """Base of all errors this project raises on purpose; `str(error)` is written for the person who reads it."""


class CheckpointError(SpeechError):
    """A checkpoint directory that cannot be loaded: names what is missing, unexpected or of the wrong shape."""


class InvalidRequest(SpeechError):
    """A request that can never be served. `param` names the offending field, if it is a single one."""

    def __init__(self, message: str, param: str | None = None):
        super().__init__(message, param)
        self.message = message
        self.param = param

    def __str__(self) -> str:
        return self.message


class QueueFull(SpeechError):
    """The waiting queue is full; the same request may be served a little later."""


class EngineStopped(SpeechError):
    """The engine is shutting down, or failed and cannot continue."""


class ReplicaLost(SpeechError):
    """Replicas died again and again under one request; the work was given up."""


class ModelFailure(SpeechError):
    """The model itself misbehaved for one request: a value that is not finite, or no speech at all."""

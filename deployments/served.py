"""The names this server answers to: its model and the model's aliases; and what OpenAI's clients call voices."""

from dataclasses import dataclass

from deployments.http_errors import model_not_found

DEFAULT_VOICE = "default"
OPENAI_VOICES = (
    "alloy", "ash", "ballad", "coral", "echo", "fable", "onyx",
    "nova", "sage", "shimmer", "verse", "marin", "cedar",
)  # fmt: skip
"""Names that clients of OpenAI's API send; each stands for the default voice unless a voice has that name."""


@dataclass(frozen=True)
class Served:
    """One model."""

    model: str
    aliases: tuple[str, ...] = ()

    @property
    def models(self) -> tuple[str, ...]:
        return (self.model, *self.aliases)

    def check_model(self, name: str | None) -> None:
        """ApiError 404 unless `name` is the model's, an alias, or unset."""
        if name is not None and name not in self.models:
            raise model_not_found(name, self.models)

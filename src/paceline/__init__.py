"""Paceline: an LLM inference and serving engine that keeps every stream on pace."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paceline.core.request import SamplingParams
    from paceline.llm import LLM, Generation, GenerationOptions

__version__ = "0.1.0"
__all__ = ["LLM", "Generation", "GenerationOptions", "SamplingParams", "__version__"]


def __getattr__(name: str) -> Any:
    """The public names, imported on first use: `import paceline` alone stays fast."""
    if name == "SamplingParams":
        from paceline.core.request import SamplingParams

        return SamplingParams
    if name in ("LLM", "Generation", "GenerationOptions"):
        from paceline import llm

        return getattr(llm, name)
    raise AttributeError(f"module 'paceline' has no attribute {name!r}")

"""Paceline: an LLM inference and serving engine that keeps every stream on pace."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paceline.core.request import Grammar, GrammarKind, SamplingParams
    from paceline.llm import LLM, Generation, GenerationOptions

__version__ = "0.1.0"
__all__ = ["LLM", "Generation", "GenerationOptions", "Grammar", "GrammarKind", "SamplingParams", "__version__"]


def __getattr__(name: str) -> Any:
    """The public names, imported on first use: `import paceline` alone stays fast."""
    if name in ("Grammar", "GrammarKind", "SamplingParams"):
        from paceline.core import request

        return getattr(request, name)
    if name in ("LLM", "Generation", "GenerationOptions"):
        from paceline import llm

        return getattr(llm, name)
    raise AttributeError(f"module 'paceline' has no attribute {name!r}")

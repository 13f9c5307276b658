"""Paceline: an LLM inference and serving engine that keeps every stream on pace."""

__version__ = "0.1.0"

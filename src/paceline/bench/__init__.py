"""The load generator: drives any OpenAI-compatible server and says what it measured, and what limits it."""

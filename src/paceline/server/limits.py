"""What one HTTP request may ask for at most. Every limit is checked before work is queued, and named when it is passed.

They bound memory and time of the API process; what the engine bounds (context, pool, queue) is not here.
"""

MAX_BODY_BYTES = 8 * 1024 * 1024
MAX_FIELD_BYTES = 64 * 1024
"""JSON of one field, other than messages and prompt."""

MAX_TOOLS_BYTES = 512 * 1024
MAX_CALLS_BYTES = 1024 * 1024
"""JSON of the tool calls of all messages."""

MAX_TOOLS = 128
MAX_CALLS = 128
"""Tool calls of one message."""

MAX_SCHEMA_DEPTH = 64
MAX_NAME_CHARS = 256
MAX_MESSAGES = 4096
MAX_CONTENT_PARTS = 16384
MAX_PROMPTS = 2048
MAX_INPUT_IDS = 300_000
"""Token ids of one embeddings request, when they come as ids."""

MAX_LISTED_TOKENS = 128 * 1024
"""Token ids of one prompt that is cut to its last ones, or of one text asked for; a longer context raises it."""

MAX_TEMPLATE_VARIABLES = 32
MAX_CHOICES = 128
MAX_SEQUENCES = 2048
"""Prompts times choices of one HTTP request."""

MAX_LOGPROBS = 20
MAX_STOP_TOKENS = 1024
MAX_LOGIT_BIAS = 1024
MAX_LOGIT_BIAS_VALUE = 100.0
MAX_TEMPERATURE = 100.0
MAX_PENALTY = 2.0
MAX_REPETITION_PENALTY = 100.0
MAX_CACHE_SALT_CHARS = 256
MAX_INT32 = 2**31 - 1
MIN_SEED = -(2**63)
MAX_SEED = 2**64 - 1
MAX_VALUE_SHOWN_CHARS = 40

MAX_SCHEMA_VALUES = 5000
MAX_FORCED_CHARS = 2000
"""One string of a schema, or one text of a choice."""

MAX_CHOICE_TEXTS = 1000
MAX_REGEX_CHARS = 4000
MAX_GRAMMAR_CHARS = 20_000

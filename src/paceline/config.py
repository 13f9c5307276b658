"""What a server was told to do: resolved once from the command line, frozen, printed at start.

`ServeConfig` is the API process's; the part the engine process needs is `EngineConfig`, which travels to it as JSON.
None means: the engine decides from the model and the machine. Errors name the option, the limit and the value.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from paceline.errors import ConfigError

DEFAULT_MODEL = "smollm2-135m"
DEFAULT_ENGINE_FACTORY = "paceline.engine.engine:build_engine"
GENERATION_CONFIGS = ("auto", "none", "vllm")
KV_CACHE_DTYPES = ("auto", "float32", "bfloat16", "int8")
INSTRUCTION_SETS = ("avx512", "avx2", "portable")
LOG_FORMATS = ("plain", "json")
POOLING_TYPES = ("last", "mean")
QUANTIZATIONS = (None, "int8")
TOOL_CALL_PARSERS = ("hermes", "llama3_json", "mistral")
REASONING_PARSERS = ("qwen3", "deepseek_r1")

COUNT_SUFFIXES = {"": 1, "k": 1000, "K": 1024, "m": 1000**2, "M": 1024**2, "g": 1000**3, "G": 1024**3}
BINARY_SUFFIXES = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "kib": 1024, "mib": 1024**2, "gib": 1024**3}
BYTE_SUFFIXES = BINARY_SUFFIXES | {"kb": 1000, "mb": 1000**2, "gb": 1000**3}


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What the engine process is started with."""

    model: str = DEFAULT_MODEL
    revision: str | None = None
    max_model_len: int | None = None
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 256
    max_num_queued_reqs: int = 1024
    block_size: int = 16
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    enable_prefix_caching: bool = True
    kv_memory_bytes: int | None = None
    num_threads: int | None = None
    isa: str | None = None
    record: str | None = None
    pooling_type: str | None = None

    def __post_init__(self) -> None:
        """Check every value. Raises ConfigError."""
        check_option("--max-model-len", self.max_model_len, 1, 2**24)
        check_option("--max-num-seqs", self.max_num_seqs, 1, 4096)
        check_option("--max-num-batched-tokens", self.max_num_batched_tokens, 1, 2**20)
        check_option("--max-num-queued-reqs", self.max_num_queued_reqs, 1, 2**20)
        check_option("--block-size", self.block_size, 1, 256)
        check_option("--kv-memory", self.kv_memory_bytes, 2**20, 2**50)
        check_option("--threads", self.num_threads, 1, 1024)
        if self.kv_cache_dtype not in KV_CACHE_DTYPES:
            allowed = ", ".join(KV_CACHE_DTYPES)
            raise ConfigError(f"--kv-cache-dtype must be one of {allowed}, got {self.kv_cache_dtype!r}")
        if self.quantization not in QUANTIZATIONS:
            raise ConfigError(
                f"--quantization must be int8 or left out (the model file's own format), got {self.quantization!r}"
            )
        if self.isa is not None and self.isa not in INSTRUCTION_SETS:
            raise ConfigError(f"--isa must be one of {', '.join(INSTRUCTION_SETS)}, got {self.isa!r}")
        if self.pooling_type is not None and self.pooling_type not in POOLING_TYPES:
            raise ConfigError(f"--pooling-type must be one of {', '.join(POOLING_TYPES)}, got {self.pooling_type!r}")

    @property
    def stored_kv_dtype(self) -> str:
        """The format keys and values are kept in: `kv_cache_dtype` with auto resolved."""
        return "bfloat16" if self.kv_cache_dtype == "auto" else self.kv_cache_dtype

    def to_json_mapping(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self)

    @classmethod
    def from_json_mapping(cls, values: Mapping[str, Any]) -> "EngineConfig":
        """The config that `to_json_mapping` gave."""
        return cls(**values)


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """What the API process is started with. `seed` None: each unseeded request draws its own.

    `request_timeout_s` None and rate limits None: none; `live_timeout_s` 0: an engine that hangs is waited for. Rate
    limits are per API key and minute.
    `tool_call_parser` None: what the chat template speaks. `reasoning_parser` None: thoughts are content.
    """

    engine: EngineConfig
    host: str = "127.0.0.1"
    port: int = 8000
    served_model_names: tuple[str, ...] = ()
    api_keys: tuple[str, ...] = ()
    chat_template: str | None = None
    generation_config: str = "auto"
    seed: int | None = None
    shutdown_timeout_s: float = 30.0
    live_timeout_s: float = 60.0
    request_timeout_s: float | None = None
    rate_limit_requests: int | None = None
    rate_limit_tokens: int | None = None
    allowed_origins: tuple[str, ...] = ()
    uds: str | None = None
    log_format: str = "plain"
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    engine_factory: str = DEFAULT_ENGINE_FACTORY

    def __post_init__(self) -> None:
        """Check every value. Raises ConfigError."""
        check_option("--port", self.port, 0, 65535)
        check_option("--shutdown-timeout", self.shutdown_timeout_s, 0, 86400)
        check_option("--live-timeout", self.live_timeout_s, 0, 86400)
        check_option("--request-timeout", self.request_timeout_s, 0.001, 86400 * 7)
        check_option("--rate-limit-requests", self.rate_limit_requests, 1, 2**31)
        check_option("--rate-limit-tokens", self.rate_limit_tokens, 1, 2**40)
        check_option("--seed", self.seed, 0, 2**64 - 1)
        if self.log_format not in LOG_FORMATS:
            raise ConfigError(f"--log-format must be one of {', '.join(LOG_FORMATS)}, got {self.log_format!r}")
        for origin in self.allowed_origins:
            if origin != "*" and not re.fullmatch(r"https?://[^/\s]+", origin):
                raise ConfigError(f"--allowed-origins must be * or SCHEME://HOST[:PORT] without a path, got {origin!r}")
        if self.generation_config not in GENERATION_CONFIGS:
            allowed = ", ".join(GENERATION_CONFIGS)
            raise ConfigError(f"--generation-config must be one of {allowed}, got {self.generation_config!r}")
        check_name("--tool-call-parser", self.tool_call_parser, TOOL_CALL_PARSERS)
        check_name("--reasoning-parser", self.reasoning_parser, REASONING_PARSERS)
        if any(not key.strip() or not key.isascii() for key in self.api_keys):
            raise ConfigError("--api-key must be a non-empty ASCII text")
        if any(not name for name in self.served_model_names):
            raise ConfigError("--served-model-name must not be empty")

    @property
    def model_names(self) -> tuple[str, ...]:
        """The names clients may use; the first is the one answers carry."""
        return self.served_model_names or (self.engine.model,)


def check_option(name: str, value: float | None, low: float, high: float) -> None:
    """`value`, when given, lies in [low, high]."""
    if value is not None and not low <= value <= high:
        raise ConfigError(f"{name} must be between {low} and {high}, got {value}")


def check_name(name: str, value: str | None, allowed: Sequence[str]) -> None:
    """`value`, when given, is one of those allowed."""
    if value is not None and value not in allowed:
        raise ConfigError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")


def parse_count(name: str, text: str) -> int:
    """A count such as 4096, 4k (4,000), 4K (4,096), 1m or 1.5k."""
    return parse_suffixed(name, text, COUNT_SUFFIXES, "a number such as 4096, 4k (4,000) or 4K (4,096)")


def parse_bytes(name: str, text: str) -> int:
    """An amount of memory such as 512MiB, 2GiB or 1.5g (binary); MB and GB are decimal."""
    lowered = text.strip().lower()
    return parse_suffixed(name, lowered, BYTE_SUFFIXES, "an amount of memory such as 512MiB, 2GiB or 1.5g")


def parse_suffixed(name: str, text: str, suffixes: Mapping[str, int], expected: str) -> int:
    """A whole number of units written as a decimal number and a suffix."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?)\s*([a-zA-Z]*)", text.strip())
    if match is None or match.group(2) not in suffixes:
        raise ConfigError(f"{name} must be {expected}, got {text!r}")
    amount = float(match.group(1)) * suffixes[match.group(2)]
    if amount != int(amount):
        raise ConfigError(f"{name} must be a whole number, got {text!r} = {amount}")
    return int(amount)

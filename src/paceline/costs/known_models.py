"""Models by name: the sizes that their published configurations state, so that a plan needs no download.

Parameters are counts of the published weights (text part only where a model also sees). Names are short and lower case;
an owner in front and endings such as `-instruct` are ignored when looked up.
"""

from dataclasses import replace

from paceline.costs.model_size import Experts, ModelSize
from paceline.errors import ConfigError


def _dense(name: str, billions: float, shape: tuple[int, int, int, int], vocab_size: int, context: int) -> ModelSize:
    """`shape`: layers, heads, KV heads, head width."""
    num_layers, num_heads, num_kv_heads, head_width = shape
    return ModelSize(name, billions * 1e9, num_layers, num_heads, num_kv_heads, head_width, vocab_size, context)


def _mixture(dense: ModelSize, active_billions: float, experts: Experts, latent_width: int | None = None) -> ModelSize:
    return replace(dense, num_active_params=active_billions * 1e9, experts=experts, latent_width=latent_width)


def _windowed(size: ModelSize, window: int, full_every: int) -> ModelSize:
    """Every `full_every`-th layer sees everything, the others a window."""
    windows = tuple(None if (index + 1) % full_every == 0 else window for index in range(size.num_layers))
    return replace(size, windows=windows)


_LLAMA = (
    _dense("llama-2-7b", 6.738, (32, 32, 32, 128), 32_000, 4_096),
    _dense("llama-2-13b", 13.016, (40, 40, 40, 128), 32_000, 4_096),
    _dense("llama-2-70b", 68.977, (80, 64, 8, 128), 32_000, 4_096),
    _dense("llama-3-8b", 8.030, (32, 32, 8, 128), 128_256, 8_192),
    _dense("llama-3-70b", 70.554, (80, 64, 8, 128), 128_256, 8_192),
    _dense("llama-3.1-8b", 8.030, (32, 32, 8, 128), 128_256, 131_072),
    _dense("llama-3.1-70b", 70.554, (80, 64, 8, 128), 128_256, 131_072),
    _dense("llama-3.1-405b", 405.853, (126, 128, 8, 128), 128_256, 131_072),
    _dense("llama-3.2-1b", 1.236, (16, 32, 8, 64), 128_256, 131_072),
    _dense("llama-3.2-3b", 3.213, (28, 24, 8, 128), 128_256, 131_072),
    _dense("llama-3.3-70b", 70.554, (80, 64, 8, 128), 128_256, 131_072),
    _dense("smollm2-135m", 0.1345, (30, 9, 3, 64), 49_152, 8_192),
    _dense("smollm2-1.7b", 1.711, (24, 32, 32, 64), 49_152, 8_192),
)
_QWEN = (
    _dense("qwen2.5-0.5b", 0.494, (24, 14, 2, 64), 151_936, 32_768),
    _dense("qwen2.5-1.5b", 1.544, (28, 12, 2, 128), 151_936, 32_768),
    _dense("qwen2.5-7b", 7.616, (28, 28, 4, 128), 152_064, 32_768),
    _dense("qwen2.5-14b", 14.770, (48, 40, 8, 128), 152_064, 32_768),
    _dense("qwen2.5-32b", 32.764, (64, 40, 8, 128), 152_064, 32_768),
    _dense("qwen2.5-72b", 72.706, (80, 64, 8, 128), 152_064, 32_768),
    _dense("qwen3-0.6b", 0.596, (28, 16, 8, 128), 151_936, 40_960),
    _dense("qwen3-4b", 4.022, (36, 32, 8, 128), 151_936, 40_960),
    _dense("qwen3-8b", 8.191, (36, 32, 8, 128), 151_936, 40_960),
    _dense("qwen3-14b", 14.768, (40, 40, 8, 128), 151_936, 40_960),
    _dense("qwen3-32b", 32.762, (64, 64, 8, 128), 151_936, 40_960),
    _mixture(_dense("qwen3-30b-a3b", 30.532, (48, 32, 4, 128), 151_936, 40_960), 3.34, Experts(128, 8)),
    _mixture(_dense("qwen3-235b-a22b", 235.094, (94, 64, 4, 128), 151_936, 40_960), 22.2, Experts(128, 8)),
)
_MISTRAL = (
    _dense("mistral-7b", 7.248, (32, 32, 8, 128), 32_768, 32_768),
    _dense("mistral-nemo-12b", 12.248, (40, 32, 8, 128), 131_072, 131_072),
    _dense("mistral-small-24b", 23.572, (40, 32, 8, 128), 131_072, 32_768),
    _dense("mistral-large-123b", 122.610, (88, 96, 8, 128), 32_768, 131_072),
    _mixture(_dense("mixtral-8x7b", 46.703, (32, 32, 8, 128), 32_000, 32_768), 12.88, Experts(8, 2)),
    _mixture(_dense("mixtral-8x22b", 140.630, (56, 48, 8, 128), 32_768, 65_536), 39.15, Experts(8, 2)),
)
_GEMMA = (
    _windowed(_dense("gemma-2-2b", 2.614, (26, 8, 4, 256), 256_000, 8_192), 4_096, 2),
    _windowed(_dense("gemma-2-9b", 9.242, (42, 16, 8, 256), 256_000, 8_192), 4_096, 2),
    _windowed(_dense("gemma-2-27b", 27.227, (46, 32, 16, 128), 256_000, 8_192), 4_096, 2),
    _windowed(_dense("gemma-3-270m", 0.268, (18, 4, 1, 256), 262_144, 32_768), 512, 6),
    _windowed(_dense("gemma-3-1b", 1.000, (26, 4, 1, 256), 262_144, 32_768), 512, 6),
    _windowed(_dense("gemma-3-4b", 3.880, (34, 8, 4, 256), 262_208, 131_072), 1_024, 6),
    _windowed(_dense("gemma-3-12b", 11.766, (48, 16, 8, 256), 262_208, 131_072), 1_024, 6),
    _windowed(_dense("gemma-3-27b", 27.009, (62, 32, 16, 128), 262_208, 131_072), 1_024, 6),
)
_OTHERS = (
    _dense("phi-3-mini", 3.821, (32, 32, 32, 96), 32_064, 4_096),
    _dense("phi-4", 14.660, (40, 40, 10, 128), 100_352, 16_384),
    _windowed(_mixture(_dense("gpt-oss-20b", 20.915, (24, 64, 8, 64), 201_088, 131_072), 3.61, Experts(32, 4)), 128, 2),
    _windowed(
        _mixture(_dense("gpt-oss-120b", 116.829, (36, 64, 8, 64), 201_088, 131_072), 5.13, Experts(128, 4)), 128, 2
    ),
    # Attention keeps 512 numbers of a latent and 64 of a rotated key, for all its heads.
    _mixture(
        _dense("deepseek-v3", 671.026, (61, 128, 128, 128), 129_280, 163_840),
        37.55,
        Experts(256, 8),
        latent_width=512 + 64,
    ),
)
KNOWN_MODELS = {size.name: size for size in (*_LLAMA, *_QWEN, *_MISTRAL, *_GEMMA, *_OTHERS)}
_ENDINGS = ("-instruct", "-chat", "-it", "-hf", "-base", "-gguf")


def known_model(name: str) -> ModelSize | None:
    """The model of this name, or None."""
    key = name.lower().rsplit("/", 1)[-1].removeprefix("meta-")
    if key.startswith("mixtral"):  # of others, such an ending is another model: Mistral 7B v0.1 has windows
        key = key.removesuffix("-v0.1")
    for ending in _ENDINGS * 2:
        key = key.removesuffix(ending)
    return KNOWN_MODELS.get(key)


def find_model(name: str) -> ModelSize:
    """The model of this name. Raises ConfigError with those there are."""
    found = known_model(name)
    if found is None:
        raise ConfigError(f"model {name!r} is not a name the planner knows: {', '.join(KNOWN_MODELS)}")
    return found

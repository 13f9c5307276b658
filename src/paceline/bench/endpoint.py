"""Which server is measured, how it is asked, and what it turned out to accept."""

from dataclasses import dataclass

from paceline.errors import ConfigError

OPTIONAL_FIELDS = ("stream_options", "ignore_eos", "temperature")


class BenchError(ConfigError):
    """The benchmark can't be made as asked; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server to measure. `url` has no trailing slash and no /v1. `is_chat`: /v1/chat/completions is asked."""

    url: str
    model: str | None = None
    api_key: str | None = None
    is_chat: bool = False

    @property
    def route(self) -> str:
        """Where requests go."""
        return f"{self.url}/v1/{'chat/completions' if self.is_chat else 'completions'}"

    @property
    def headers(self) -> dict[str, str]:
        """Sent with everything. Compressed streams would come in bursts."""
        key = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        return {"Accept-Encoding": "identity", **key}


@dataclass(frozen=True, slots=True)
class Abilities:
    """What the probe found. `fields`: the optional fields that the server takes; `overhead_tokens`: what it adds to a
    prompt (template, BOS); `notes`: what the reader of the numbers should know.
    """

    model: str
    takes_ids: bool
    fields: tuple[str, ...]
    limit_field: str = "max_tokens"
    overhead_tokens: int = 0
    max_model_len: int | None = None
    about: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


def parse_url(text: str) -> str:
    """The server's root from what people type: with or without scheme, /v1 or slashes at the end."""
    url = text if "://" in text else f"http://{text}"
    url = url.rstrip("/").removesuffix("/v1").rstrip("/")
    scheme, _, rest = url.partition("://")
    if scheme not in ("http", "https") or not rest:
        raise BenchError(f"server {text!r}: expected a URL such as http://127.0.0.1:8000")
    return url

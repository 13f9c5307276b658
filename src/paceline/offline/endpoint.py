"""Which server a command asks, and how: its root, the model's name there, the key."""

from dataclasses import dataclass

from paceline.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server. `url` has no slash and no /v1 at its end."""

    url: str
    api_key: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Sent with every request."""
        key = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        return {"Content-Type": "application/json", **key}


def parse_url(text: str) -> str:
    """A server's root from what people type: with or without scheme, /v1 or slashes at its end. Raises ConfigError."""
    url = text if "://" in text else f"http://{text}"
    url = url.rstrip("/").removesuffix("/v1").rstrip("/")
    scheme, _, rest = url.partition("://")
    if scheme not in ("http", "https") or not rest or any(character.isspace() for character in url):
        raise ConfigError(f"--url must be an address such as http://127.0.0.1:8000, got {text!r}")
    return url

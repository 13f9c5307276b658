"""Log probabilities as the two routes report them, and as vLLM reports a prompt's.

chat         content[] of {token, logprob, bytes, top_logprobs}: each token shown alone, with its exact bytes
completions  parallel lists; tokens are the pieces of the text, so that joined they are the text and offsets fit
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline.core.plan import TokenLogprobs
from paceline.server.choice import ShownToken
from paceline.text.tokenizer import Tokenizer

MIN_LOGPROB = -9999.0


def finite(logprob: float | None) -> float:
    """The logprob as JSON can say it: minus infinity is -9999, as in OpenAI's API."""
    assert logprob is not None, "a token of a request that asked for logprobs has none"
    return max(logprob, MIN_LOGPROB)


def chat_token(tokenizer: Tokenizer, token_id: int, logprob: float | None) -> dict[str, Any]:
    """One token of a chat answer, chosen or alternative."""
    data = tokenizer.token_bytes(token_id)
    return {"token": data.decode("utf-8", "replace"), "logprob": finite(logprob), "bytes": list(data)}


def chat_logprobs(tokenizer: Tokenizer, tokens: Iterable[ShownToken]) -> dict[str, Any]:
    """The logprobs object of a chat choice or chunk."""
    content = []
    for shown in tokens:
        scored = shown.scored
        top = [chat_token(tokenizer, token_id, logprob) for token_id, logprob in scored.top]
        content.append(chat_token(tokenizer, scored.token_id, scored.logprob) | {"top_logprobs": top})
    return {"content": content, "refusal": None}


@dataclass(slots=True)
class CompletionLogprobs:
    """The logprobs object of one completion choice, filled token by token; `offset` is where the next one starts."""

    tokenizer: Tokenizer
    num_alternatives: int
    offset: int = 0
    tokens: list[str] = field(default_factory=list)
    token_logprobs: list[float | None] = field(default_factory=list)
    top_logprobs: list[dict[str, float] | None] = field(default_factory=list)
    text_offset: list[int] = field(default_factory=list)

    def add(self, text: str, scored: TokenLogprobs | None) -> None:
        """Append a token; `scored` None for the first of a prompt, which nothing precedes."""
        self.tokens.append(text)
        self.text_offset.append(self.offset)
        self.offset += len(text)
        self.token_logprobs.append(None if scored is None else finite(scored.logprob))
        self.top_logprobs.append(None if scored is None else self._alternatives(text, scored))

    def take(self) -> dict[str, Any]:
        """The object with what was added since the last call."""
        taken = {
            "tokens": self.tokens,
            "token_logprobs": self.token_logprobs,
            "top_logprobs": self.top_logprobs if self.num_alternatives else None,
            "text_offset": self.text_offset,
        }
        self.tokens, self.token_logprobs, self.top_logprobs, self.text_offset = [], [], [], []
        return taken

    def _alternatives(self, text: str, scored: TokenLogprobs) -> dict[str, float]:
        """The best tokens and the chosen one; of several with one spelling the likeliest is kept."""
        found: dict[str, float] = {}
        for token_id, logprob in scored.top[: self.num_alternatives]:
            spelling = text if token_id == scored.token_id else self.tokenizer.token_text(token_id)
            found.setdefault(spelling, finite(logprob))
        found.setdefault(text, finite(scored.logprob))
        return found


def prompt_logprobs(
    tokenizer: Tokenizer, scores: Sequence[TokenLogprobs], num_alternatives: int
) -> list[dict[str, Any] | None]:
    """A prompt's logprobs, one entry a position, the first null: token id → {logprob, rank, decoded_token}."""
    entries: list[dict[str, Any] | None] = [None]
    for scored in scores:
        ranked: list[tuple[int, float | None, int | None]] = [
            (token_id, logprob, rank) for rank, (token_id, logprob) in enumerate(scored.top[:num_alternatives], 1)
        ]
        if all(token_id != scored.token_id for token_id, _, _ in ranked):
            ranked.append((scored.token_id, scored.logprob, None))
        entries.append(
            {
                str(token_id): {
                    "logprob": finite(logprob),
                    "rank": rank,
                    "decoded_token": tokenizer.token_text(token_id),
                }
                for token_id, logprob, rank in ranked
            }
        )
    return entries

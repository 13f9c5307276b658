"""Makes the body of a request from a WorkItem: token ids where the server takes them, else words of one token each.

The same segment gives the same tokens, so what items share the server sees shared. What the server adds to every prompt
(a template, BOS) is taken off the end, so that the prompt it computes has the length asked for.
"""

from itertools import islice

from paceline.bench.endpoint import Abilities, Endpoint
from paceline.workload.item import WorkItem, segment_tokens
from paceline.workload.segments import segment_words

# Ordinary tokens of every vocabulary in use: special ones and single bytes lie below, the smallest have 32,000.
FIRST_ID = 1000
NUM_IDS = 20000


def prompt_ids(item: WorkItem, seed: int) -> list[int]:
    """The prompt as token ids."""
    return [FIRST_ID + number for part in item.prompt for number in segment_tokens(part, seed, NUM_IDS)]


def prompt_words(item: WorkItem, seed: int) -> list[str]:
    """The prompt as words of one token each; the probe checks that on the server."""
    return [word for part in item.prompt for word in islice(segment_words(part, seed), part.num_tokens)]


def prompt_of(item: WorkItem, seed: int, abilities: Abilities) -> str | list[int]:
    """The prompt in the form the server takes, at least one token long."""
    keep = max(1, item.prompt_tokens - abilities.overhead_tokens)
    if abilities.takes_ids:
        return prompt_ids(item, seed)[:keep]
    return " ".join(prompt_words(item, seed)[:keep])


def request_body(
    endpoint: Endpoint, abilities: Abilities, prompt: str | list[int], output_tokens: int
) -> dict[str, object]:
    """What is posted: a stream of exactly `output_tokens`, greedy, with usage, as far as the server can."""
    optional: dict[str, object] = {
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
        "temperature": 0,
    }
    asked = {"messages": [{"role": "user", "content": prompt}]} if endpoint.is_chat else {"prompt": prompt}
    return {
        "model": abilities.model,
        **asked,
        abilities.limit_field: output_tokens,
        "stream": True,
        **{name: optional[name] for name in abilities.fields},
    }

"""Asks a server a few short questions before it is measured: what it is, and which fields and prompts it takes.

A server that refuses a field by name (status 400 or 422) is asked again without it. Lengths are checked with the
server's own count: two prompts of words, one twice as long, show what it adds and whether a word is one token.
"""

from dataclasses import replace

import aiohttp
import msgspec

from paceline.bench.endpoint import OPTIONAL_FIELDS, Abilities, BenchError, Endpoint
from paceline.bench.exchange import encode_body, exchange
from paceline.bench.prompts import prompt_of, request_body
from paceline.bench.stream import Usage, decode
from paceline.workload.item import Segment, WorkItem

PROBE_TIMEOUT_S = 120.0
REFUSALS = (400, 404, 415, 422)
NUM_PROBE_TOKENS = 32
PROBE_OUTPUT_TOKENS = 2


class Refused(BenchError):
    """The server said no to a probe, with this message."""


async def probe(session: aiohttp.ClientSession, endpoint: Endpoint) -> Abilities:
    """Find out what the server takes. Raises BenchError when it does not answer at all."""
    model, max_model_len, about = await describe(session, endpoint)
    abilities = Abilities(model, not endpoint.is_chat, OPTIONAL_FIELDS, max_model_len=max_model_len, about=about)
    while True:
        try:
            usage = await ask(session, endpoint, abilities, NUM_PROBE_TOKENS)
            break
        except Refused as refusal:
            abilities = asking_less(abilities, endpoint, str(refusal))
    return await with_overhead(session, endpoint, abilities, usage)


async def describe(
    session: aiohttp.ClientSession, endpoint: Endpoint
) -> tuple[str, int | None, tuple[tuple[str, str], ...]]:
    """(model, its longest context, what the server says of itself)."""
    models = await get_json(session, f"{endpoint.url}/v1/models")
    version = await get_json(session, f"{endpoint.url}/version")
    about = [("url", endpoint.url)]
    if isinstance(version, dict) and "version" in version:
        about.append(("version", str(version["version"])))
    cards = models.get("data") if isinstance(models, dict) else None
    cards = [card for card in cards if isinstance(card, dict)] if isinstance(cards, list) else []
    chosen: dict[str, object] = next((card for card in cards if endpoint.model in (None, card.get("id"))), {})
    model = endpoint.model or chosen.get("id")
    if not isinstance(model, str):
        raise BenchError(f"{endpoint.url}: /v1/models names no model; name it with --model")
    about += [(key, str(chosen[key])) for key in ("id", "owned_by", "root", "max_model_len") if key in chosen]
    longest = chosen.get("max_model_len")
    return model, longest if isinstance(longest, int) else None, tuple(about)


async def get_json(session: aiohttp.ClientSession, url: str) -> object:
    """A JSON answer, None where there is none. Raises BenchError when nobody listens."""
    try:
        async with session.get(url, timeout=aiohttp.ClientTimeout(total=PROBE_TIMEOUT_S)) as response:
            content = await response.read()
            return msgspec.json.decode(content) if response.status == 200 else None
    except msgspec.DecodeError:
        return None
    except (aiohttp.ClientError, OSError) as error:
        raise BenchError(f"{url}: no answer ({error}); is the server running there?") from error


async def ask(
    session: aiohttp.ClientSession, endpoint: Endpoint, abilities: Abilities, num_tokens: int
) -> Usage | None:
    """Send one short prompt; the usage of its answer. Raises Refused."""
    item = WorkItem(0, None, (Segment(0, num_tokens),), PROBE_OUTPUT_TOKENS)
    prompt = prompt_of(item, num_tokens, abilities)
    body = encode_body(request_body(endpoint, abilities, prompt, PROBE_OUTPUT_TOKENS))
    result = await exchange(session, endpoint, body, PROBE_TIMEOUT_S)
    if result.status in REFUSALS:
        raise Refused(result.error or "")
    answer = decode(result.reads)
    if result.error or answer.error:
        raise BenchError(f"{endpoint.route}: a short first request failed: {result.error or answer.error}")
    return answer.usage


def asking_less(abilities: Abilities, endpoint: Endpoint, refusal: str) -> Abilities:
    """Without what the refusal is about. Raises BenchError when nothing is left to leave out."""
    for name in abilities.fields:
        if name in refusal:
            return replace(abilities, fields=tuple(other for other in abilities.fields if other != name))
    if "max_completion_tokens" in refusal and abilities.limit_field == "max_tokens":
        return replace(abilities, limit_field="max_completion_tokens")
    if abilities.takes_ids:
        return replace(abilities, takes_ids=False)
    raise BenchError(f"{endpoint.route} refused a short request: {refusal}")


async def with_overhead(
    session: aiohttp.ClientSession, endpoint: Endpoint, abilities: Abilities, usage: Usage | None
) -> Abilities:
    """Add what the server puts around a prompt, and notes on what could not be checked."""
    notes = [f"the server does not take `{name}`" for name in OPTIONAL_FIELDS if name not in abilities.fields]
    if "ignore_eos" not in abilities.fields:
        notes.append("answers may be shorter than asked")
    if usage is None or usage.prompt_tokens == 0:
        notes.append("the server reports no usage: prompt lengths are not checked")
        return replace(abilities, notes=tuple(notes))
    twice = await ask(session, endpoint, abilities, 2 * NUM_PROBE_TOKENS)
    overhead = usage.prompt_tokens - NUM_PROBE_TOKENS
    if twice is None or twice.prompt_tokens - usage.prompt_tokens != NUM_PROBE_TOKENS:
        notes.append("the server's tokenizer does not take a word for a token: prompt lengths are approximate")
        overhead = 0
    return replace(abilities, overhead_tokens=max(0, overhead), notes=tuple(notes))

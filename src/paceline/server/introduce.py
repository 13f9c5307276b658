"""Tells the engine how the model's tokens are spelled, which it needs for grammars and for nothing else.

It costs both processes a fraction of a second. So it is done while nobody waits, a moment after the start; at the
latest when the first request with a grammar comes, which may then hold up the running streams, once.
"""

import asyncio
from contextlib import suppress

from paceline.errors import UnavailableError
from paceline.server.context import ServingContext
from paceline.server.model_text import spellings_of

QUIET_S = 1.0


async def introduce_tokens(context: ServingContext) -> None:
    """Tell it now, unless it knows."""
    if not context.client.knows_spellings:
        tokenizer = context.check_ready().tokenizer
        context.client.provide_spellings(await asyncio.to_thread(spellings_of, tokenizer))


async def introduce_when_quiet(context: ServingContext) -> None:
    """Tell it as soon as the server has had nothing to do for a moment."""
    while not context.client.knows_spellings:
        await asyncio.sleep(QUIET_S)
        with suppress(UnavailableError):
            if not context.open_sessions:
                await introduce_tokens(context)

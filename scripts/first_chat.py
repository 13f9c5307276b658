"""Sends one streamed chat completion to a running server and prints the answer as it comes, TTFT and tokens/s.

Standard library only, and no import of paceline: it is what a client is. Use: first_chat.py [URL] [PROMPT]
"""

import json
import shlex
import sys
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

DEFAULT_URL = "http://127.0.0.1:8000"
DEFAULT_PROMPT = "What does HTTP stand for?"
MAX_TOKENS = 64
TIMEOUT_S = 300


def chat_body(url: str, prompt: str) -> dict[str, Any]:
    """The request, to the first model served there: greedy, so that everybody gets the same answer."""
    with urllib.request.urlopen(f"{url}/v1/models", timeout=TIMEOUT_S) as response:
        model = json.load(response)["data"][0]["id"]
    message = {"role": "user", "content": prompt}
    return {"model": model, "messages": [message], "temperature": 0, "max_tokens": MAX_TOKENS, "stream": True}


def open_stream(url: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The chunks of a streamed answer, as they come."""
    data = json.dumps(body | {"stream_options": {"include_usage": True}}).encode()
    request = urllib.request.Request(f"{url}/v1/chat/completions", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        for line in response:
            data = line.decode().strip().removeprefix("data: ")
            if data == "[DONE]":
                return
            if data:
                yield json.loads(data)
    raise EOFError("the stream ended without [DONE]")


def first_chat(url: str, prompt: str = DEFAULT_PROMPT) -> None:
    """Print the conversation, its timing and how to repeat it. Raises OSError or EOFError when the server fails us."""
    body = chat_body(url, prompt)
    print(f"\n> {prompt}\n", flush=True)
    start_s = time.perf_counter()
    times_s: list[float] = []
    num_tokens = 0
    for chunk in open_stream(url, body):
        if "error" in chunk:
            raise OSError(chunk["error"]["message"])
        for choice in chunk["choices"]:
            text = choice["delta"].get("content")
            if text:
                times_s.append(time.perf_counter())
                print(text, end="", flush=True)
        if chunk.get("usage"):
            num_tokens = chunk["usage"]["completion_tokens"]
    if not times_s:
        raise EOFError("the answer is empty")
    print("\n\n" + timing(start_s, times_s, num_tokens))
    print(f"\nTry it:\n\n{curl_line(url, body)}\n", flush=True)


def timing(start_s: float, times_s: list[float], num_tokens: int) -> str:
    """TTFT, and the rate of the tokens after the first."""
    ttft_ms = 1000 * (times_s[0] - start_s)
    streaming_s = times_s[-1] - times_s[0]
    rate = f"{(num_tokens - 1) / streaming_s:.0f} tokens/s" if streaming_s > 0 else "one piece"
    return f"TTFT {ttft_ms:.0f} ms, {num_tokens} tokens, then {rate}"


def curl_line(url: str, body: dict[str, Any]) -> str:
    """The same request for a terminal."""
    quoted = shlex.quote(json.dumps(body))
    return f"curl -N {url}/v1/chat/completions -H 'Content-Type: application/json' \\\n  -d {quoted}"


def main() -> int:
    """Entry point."""
    url = sys.argv[1] if len(sys.argv) > 1 else DEFAULT_URL
    prompt = sys.argv[2] if len(sys.argv) > 2 else DEFAULT_PROMPT
    try:
        first_chat(url, prompt)
    except (OSError, EOFError) as error:
        print(f"no answer from {url}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

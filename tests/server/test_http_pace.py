"""A token leaves when it is there: nothing on the way holds small packets back for company."""

import json
import socket
from collections.abc import Callable

from running_server import RunningServer

NUM_ANSWERS = 6
BODY = {"model": "scripted", "prompt": "One,", "temperature": 0, "max_tokens": 12, "stream": True}
END_OF_CHUNKS = b"0\r\n\r\n"


def tokens_in_each_read(connection: socket.socket) -> list[int]:
    """How many tokens each read of a streamed answer brought. The request goes out in one piece, as most clients'."""
    body = json.dumps(BODY).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    connection.sendall(head % len(body) + body)
    counts = []
    while True:
        data = connection.recv(65536)
        counts.append(data.count(b'"text"'))
        if data.endswith(END_OF_CHUNKS):
            return counts


def test_the_first_tokens_of_an_answer_come_one_by_one(start_server: Callable[..., RunningServer]) -> None:
    """Nagle's algorithm holds what follows the first packet until the client's delayed acknowledgement: on a used
    connection the tokens of 40 ms would come in one piece.
    """
    server = start_server(step_s=0.008)
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        most = [max(tokens_in_each_read(connection)) for _ in range(NUM_ANSWERS)]
    assert sorted(most)[NUM_ANSWERS // 2] == 1, most

// Requests to the server that this page came from, with the API key of this tab.

const KEY_ITEM = "paceline-api-key";
const PROBE_TIMEOUT_MS = 5_000;

export const hasKey = () => sessionStorage.getItem(KEY_ITEM) !== null;
export const useKey = (key) => sessionStorage.setItem(KEY_ITEM, key);

export class ServerError extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

// A response that is fine. Throws a ServerError with the server's message for any other.
export async function ask(path, options = {}) {
  const key = sessionStorage.getItem(KEY_ITEM);
  const headers = { ...options.headers, ...(key && { Authorization: `Bearer ${key}` }) };
  const response = await fetch(path, { cache: "no-store", ...options, headers });
  if (response.ok) return response;
  const body = await response.text();
  let message = `the server answered ${response.status} ${response.statusText}`;
  try {
    message = JSON.parse(body).error.message;
  } catch {
    // A proxy's error page: its status says all that can be used.
  }
  throw new ServerError(message, response.status);
}

// A small JSON answer, soon or not at all.
export async function probe(path) {
  const response = await ask(path, { signal: AbortSignal.timeout(PROBE_TIMEOUT_MS) });
  return response.json();
}

// The chunks of a streamed answer. Throws a ServerError for one that the server ends with an error.
export async function* streamChat(body, signal) {
  const response = await ask("v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  for await (const data of eventsOf(response)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ServerError(chunk.error.message);
    yield chunk;
  }
  throw new ServerError("the stream ended before the answer was complete");
}

// The data of each event; other lines keep the connection alive.
async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line.startsWith("data:")) yield line.slice(5).trim();
  }
}

// The chat: the conversation, the state of the server, and what the user's hands do.
//
// `exchanges` is the conversation and `running` the answer on its way; only `send` and `clear` change them. How the
// server is, `connect` finds out, shows, and asks again for as long as the page is open.

import { Exchange } from "./exchange.js";
import { ServerError, hasKey, probe, streamChat, useKey } from "./server.js";

const READY_POLL_MS = 10_000;
const WAITING_POLL_MS = 1_000;

const find = (id) => document.getElementById(id);
const announce = (text) => { find("announcer").textContent = text; };
const isTouched = () => matchMedia("(pointer: coarse)").matches;
const log = find("log");
const message = find("message");

const exchanges = [];
let running = null; // Aborts the answer on its way; null when there is none.
let isReady = false;
let timer = 0;

// --- The conversation

async function send(question) {
  const exchange = new Exchange(question, find("model").value, { onCopy: copy, onRetry: retry });
  const body = requestBody(question);
  const abort = running = new AbortController();
  exchanges.push(exchange);
  log.append(exchange.element);
  log.scrollTop = log.scrollHeight;
  updateControls();
  announce("Answering.");
  try {
    for await (const chunk of streamChat(body, abort.signal)) exchange.take(chunk);
    exchange.close();
    announce(exchange.summary);
  } catch (error) {
    breakOff(exchange, error);
  }
  if (running === abort) running = null;
  updateControls();
}

function requestBody(question) {
  const number = (id) => find(id).value === "" ? undefined : find(id).valueAsNumber;
  const system = find("system").value.trim();
  const answered = exchanges.filter((exchange) => exchange.answer);
  return {
    model: find("model").value,
    messages: [
      ...(system ? [{ role: "system", content: system }] : []),
      ...answered.flatMap((exchange) => [
        { role: "user", content: exchange.question },
        { role: "assistant", content: exchange.answer },
      ]),
      { role: "user", content: question },
    ],
    temperature: number("temperature"),
    max_tokens: number("max-tokens"),
    seed: number("seed"),
  };
}

// An answer that was not completed: stopped by the user, refused or ended by the server, or lost with the connection.
function breakOff(exchange, error) {
  if (error.name === "AbortError") {
    exchange.close({ note: "Stopped." });
    announce("Stopped.");
    return;
  }
  const trouble = error instanceof ServerError ? error.message : "the connection to the server broke";
  exchange.close({ trouble });
  announce(`Error: ${trouble}`);
  if (error.status === 401) isReady = false; // So that the server is asked for its models again, and we for a key.
  connect();
}

function retry(exchange) {
  if (running || !isReady || exchange !== exchanges.at(-1)) return;
  exchanges.pop();
  exchange.element.remove();
  send(exchange.question);
  returnToMessage();
}

function clear() {
  running?.abort();
  running = null;
  for (const exchange of exchanges.splice(0)) exchange.element.remove();
  announce("Cleared.");
  updateControls();
  returnToMessage();
}

async function copy(exchange) {
  try {
    await navigator.clipboard.writeText(exchange.answer);
  } catch { // Over plain HTTP, or where it is denied, a page can only copy what is selected.
    getSelection().selectAllChildren(exchange.element.querySelector(".answer"));
    document.execCommand("copy");
  }
  announce("Copied.");
}

// --- The state of the server

async function connect() {
  let pauseMs = WAITING_POLL_MS;
  try {
    await probe("ready");
    if (!isReady) await greet();
    show("ready", "Ready");
    pauseMs = READY_POLL_MS;
  } catch (error) {
    if (error.status === 401) {
      show("key", "Key needed", hasKey() ? `The server refuses this key: ${error.message}.` : "");
      pauseMs = null; // The form that asks for a key goes on.
    } else if (error instanceof ServerError) {
      show("waiting", "Not ready", `Not ready: ${error.message}. This page goes on by itself.`);
    } else {
      show("away", "No connection", "The server can't be reached. This page connects again by itself.");
    }
  }
  clearTimeout(timer);
  if (pauseMs !== null) timer = setTimeout(connect, pauseMs);
}

// A server that has just become ready may be another one: its version and models.
async function greet() {
  const [{ version }, { data }] = await Promise.all([probe("version"), probe("v1/models")]);
  const picker = find("model");
  const chosen = picker.value;
  picker.replaceChildren(...data.map(({ id }) => new Option(id, id, false, id === chosen)));
  find("version").textContent = version;
}

function show(state, label, explanation = "") {
  if (state === "ready" && !isReady) announce("The server is ready.");
  isReady = state === "ready";
  find("state").dataset.state = state;
  find("state").textContent = label;
  // Said again only when it changes: screen readers read each setting aloud.
  if (find("banner").textContent !== explanation) find("banner").textContent = explanation;
  const wasAsking = !find("key-form").hidden;
  find("key-form").hidden = state !== "key";
  if (state === "key" && !wasAsking) find("key").focus();
  updateControls();
}

function updateControls() {
  const focused = document.activeElement;
  find("send").hidden = running !== null;
  find("stop").hidden = running === null;
  find("send").disabled = !isReady || !message.value.trim();
  find("clear").disabled = !exchanges.length;
  find("welcome").hidden = exchanges.length > 0;
  // A button that goes must not take the focus with it.
  if (focused === find("send") && running) find("stop").focus();
  if (focused === find("stop") && !running) returnToMessage();
}

// Where there are no keys, focus would only call up a keyboard that covers half of the page.
function returnToMessage() {
  if (!isTouched()) message.focus();
}

// --- Hands

find("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const question = message.value.trim();
  if (running || !isReady || !question) return;
  message.value = "";
  send(question);
});

find("key-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  useKey(find("key").value);
  find("key").value = "";
  await connect();
  if (isReady) returnToMessage();
});

message.addEventListener("keydown", (event) => {
  // While an input method composes, Enter is its own; where fingers type, it is the only way to a new line.
  const isSending = event.key === "Enter" && !event.shiftKey && !event.isComposing;
  if (!isSending || isTouched()) return;
  event.preventDefault();
  find("composer").requestSubmit();
});

message.addEventListener("input", updateControls);
document.addEventListener("keydown", (event) => { if (event.key === "Escape") running?.abort(); });
document.addEventListener("visibilitychange", () => { if (!document.hidden) connect(); });
find("stop").addEventListener("click", () => running?.abort());
find("clear").addEventListener("click", clear);
// A setting that is wrong must be seen to be put right.
find("settings").addEventListener("invalid", () => { find("settings").open = true; }, true);

find("settings").open = matchMedia("(min-width: 56rem)").matches;
find("base-url").textContent = new URL("v1", document.baseURI).href;
connect();

// One question with its answer, and what is seen of it: the text as it comes, its timing, how it ended.

import { TextFlow } from "./text_flow.js";
import { Timing, drawGaps } from "./timing.js";

const FOLLOW_PX = 80;

export class Exchange {
  answer = "";
  element = document.getElementById("exchange-template").content.firstElementChild.cloneNode(true);
  #finishReason = null;
  #timing = new Timing();
  #flow = new TextFlow(this.#part("answer"));
  #unshown = { thoughts: "", answer: "" };
  #frame = 0;

  constructor(question, model, { onCopy, onRetry }) {
    this.question = question;
    this.#part("question").textContent = question;
    this.#part("by").textContent = model;
    this.#part("copy").addEventListener("click", () => onCopy(this));
    this.#part("retry").addEventListener("click", () => onRetry(this));
  }

  // One chunk of the stream: text, an end, or the server's count of tokens. Drawn with the screen's next frame.
  take({ choices: [choice], usage }) {
    const content = choice?.delta.content ?? "";
    const thoughts = choice?.delta.reasoning_content ?? "";
    if (content || thoughts) this.#timing.textCame();
    this.answer += content;
    this.#unshown.answer += content;
    this.#unshown.thoughts += thoughts;
    if (choice?.finish_reason) {
      this.#timing.endCame();
      this.#finishReason = choice.finish_reason;
    }
    if (usage) this.#timing.numTokens = usage.completion_tokens;
    this.#frame ||= requestAnimationFrame(() => this.#draw());
  }

  // Nothing more comes: `note` says why when the user stopped it, `trouble` when something failed.
  close({ note = "", trouble = "" } = {}) {
    cancelAnimationFrame(this.#frame);
    this.#draw();
    this.#flow.end();
    this.#part("answer").setAttribute("aria-busy", "false");
    this.#part("gaps").setAttribute("aria-label", this.#timing.gaps);
    this.#part("note").textContent = note || (this.#finishReason === "length" ? "Ended at the limit of tokens." : "");
    this.#part("trouble").textContent = trouble;
    this.#part("copy").hidden = !this.answer;
    this.#part("actions").hidden = false;
    this.#follow();
  }

  get summary() {
    const { hasText, ttft, pace } = this.#timing;
    return hasText ? `Answer complete. First token after ${ttft}, pace ${pace}.` : "The answer is empty.";
  }

  #part(name) { return this.element.querySelector(`.${name}`); }

  #draw() {
    this.#frame = 0;
    const isFollowed = this.#isFollowed();
    this.#drawText();
    if (this.#timing.hasText) this.#drawTiming();
    if (isFollowed) this.#follow();
  }

  #drawText() {
    const { thoughts, answer } = this.#unshown;
    this.#unshown = { thoughts: "", answer: "" };
    if (thoughts) {
      this.#part("thoughts").hidden = false;
      this.#part("thought").append(thoughts);
    }
    // Thoughts can be read while they come, then make room for the answer.
    if (answer && !this.#part("answer").hasChildNodes()) this.#part("thoughts").open = false;
    this.#flow.push(answer);
  }

  #drawTiming() {
    const { ttft, pace, worstGap, tokens, gapsMs } = this.#timing;
    for (const [name, value] of Object.entries({ ttft, pace, "worst-gap": worstGap, tokens })) {
      this.#part(name).textContent = value;
    }
    drawGaps(this.#part("gaps"), gapsMs);
    this.#part("timing").hidden = false;
  }

  // Whoever has scrolled up to read is left alone.
  #isFollowed() {
    const log = this.element.parentElement;
    return log !== null && log.scrollHeight - log.scrollTop - log.clientHeight < FOLLOW_PX;
  }

  #follow() {
    const log = this.element.parentElement;
    if (log) log.scrollTop = log.scrollHeight;
  }
}

// When the tokens of an answer came: the figures, and the picture of their gaps.

const MAX_BARS = 120;
const MIN_BARS = 60;
const HEIGHT = 100;
const LEAST_HEIGHT = 4;

// A gap lies between one event with text and the next; an event usually is a token.
export class Timing {
  gapsMs = [];
  numTokens = null; // As the server counted, once it has.
  #startMs = performance.now();
  #firstMs = null;
  #lastMs = null;
  #endMs = null;

  textCame() {
    const now = performance.now();
    if (this.#firstMs === null) this.#firstMs = now;
    else this.gapsMs.push(now - this.#lastMs);
    this.#lastMs = this.#endMs = now;
  }

  // The token that ends an answer is counted and not shown.
  endCame() { this.#endMs = performance.now(); }

  get hasText() { return this.#firstMs !== null; }
  get ttft() { return inMs(this.#firstMs - this.#startMs); }
  get worstGap() { return this.gapsMs.length ? inMs(Math.max(...this.gapsMs)) : "–"; }
  get tokens() { return String(this.numTokens ?? this.gapsMs.length + 1); }

  // Tokens after the first by the time they took. Until the server has counted, an event stands for a token.
  get pace() {
    const numLater = this.numTokens === null ? this.gapsMs.length : this.numTokens - 1;
    const streamedMs = this.#endMs - this.#firstMs;
    return numLater > 0 && streamedMs > 0 ? inRate((1000 * numLater) / streamedMs) : "–";
  }

  // The picture in words.
  get gaps() {
    if (!this.gapsMs.length) return "No gaps between tokens";
    const sorted = [...this.gapsMs].sort((a, b) => a - b);
    return `Gaps between tokens: median ${inMs(sorted[sorted.length >> 1])}, worst ${this.worstGap}`;
  }
}

function inMs(ms) {
  if (ms >= 1000) return `${(ms / 1000).toFixed(2)} s`;
  return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
}

function inRate(rate) {
  return `${rate < 10 ? rate.toFixed(1) : Math.round(rate)} tok/s`;
}

// One bar a gap, the worst brought out. In a long answer a bar is the worst of several gaps, so that none is hidden.
export function drawGaps(svg, gapsMs) {
  const gapsPerBar = Math.max(1, Math.ceil(gapsMs.length / MAX_BARS));
  const bars = [];
  gapsMs.forEach((gap, index) => {
    const bar = Math.floor(index / gapsPerBar);
    bars[bar] = Math.max(bars[bar] ?? 0, gap);
  });
  const worst = Math.max(0, ...bars);
  const worstIndex = bars.indexOf(worst);
  const paths = { usual: "", worst: "" };
  bars.forEach((gap, index) => {
    const height = Math.max(LEAST_HEIGHT, worst && (HEIGHT * gap) / worst).toFixed(1);
    paths[index === worstIndex ? "worst" : "usual"] += `M${index}.15 ${HEIGHT}v-${height}h.7v${height}z`;
  });
  svg.setAttribute("viewBox", `0 0 ${Math.max(bars.length, MIN_BARS)} ${HEIGHT}`);
  for (const [name, path] of Object.entries(paths)) svg.querySelector(`.${name}`).setAttribute("d", path);
}

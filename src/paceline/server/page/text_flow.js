// The text of an answer while it comes. It enters the document as text nodes and never as markup.
//
// Line breaks stay as they are; a line of ``` opens or closes a block of code and is not shown itself. So the start of
// a line that may become one is held back until it can't, or until the line is whole.

const OPENS_CODE = /^ {0,3}```[^`]*$/;
const CLOSES_CODE = /^ {0,3}```\s*$/;
const MAY_BECOME_FENCE = /^ {0,3}(`{0,2}|```[^`]*)$/;

export class TextFlow {
  #target;
  #node = null; // The text node that grows; null until the next block is opened.
  #isCode = false;
  #line = "";
  #numShown = 0;
  #blankLines = ""; // Shown only once text follows: blocks have their own distance.

  constructor(target) { this.#target = target; }

  push(text) {
    for (const piece of text.split(/(?<=\n)/)) {
      this.#line += piece;
      if (piece.endsWith("\n")) this.#endLine();
      else if (!MAY_BECOME_FENCE.test(this.#line)) this.#show();
    }
  }

  // No more text comes.
  end() { this.#endLine(); }

  #endLine() {
    if ((this.#isCode ? CLOSES_CODE : OPENS_CODE).test(this.#line)) {
      this.#isCode = !this.#isCode;
      this.#node = null;
      this.#blankLines = "";
    } else if (this.#isCode || this.#line.trim()) {
      this.#show();
    } else if (this.#node) {
      this.#blankLines += this.#line.slice(this.#numShown);
    }
    this.#line = "";
    this.#numShown = 0;
  }

  #show() {
    const text = this.#blankLines + this.#line.slice(this.#numShown);
    this.#blankLines = "";
    this.#numShown = this.#line.length;
    if (!text) return;
    this.#node ??= this.#openBlock();
    this.#node.appendData(text);
  }

  #openBlock() {
    const block = document.createElement(this.#isCode ? "pre" : "p");
    if (this.#isCode) block.tabIndex = 0; // It scrolls, so the keyboard must reach it.
    const node = document.createTextNode("");
    block.append(node);
    this.#target.append(block);
    return node;
  }
}

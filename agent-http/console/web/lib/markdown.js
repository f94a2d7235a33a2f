/**
 * Markdown as DOM nodes. No HTML is made from text: the lexer's tokens are an input, and only the nodes that are named
 * here are created. HTML in the text is shown as text, and pictures become links, since loading what a model names would
 * tell its server what was said.
 */

import { Lexer } from '../vendor/markdown.js';

/** Maximum depth of nested blocks; what is deeper is shown as text. */
const MAX_DEPTH = 24;
/** Length in UTF-16 code units from which an unfinished paragraph is shown as plain text until it ends. */
const MAX_OPEN_PARAGRAPH = 6000;
/** Maximum number of cells of a table; a larger one is shown as text. */
const MAX_CELLS = 5000;

const LINK_SCHEMES = new Set(['http:', 'https:', 'mailto:']);
const ENTITIES = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: '\u00a0', hellip: '…', mdash: '—', ndash: '–' };

/**
 * Creates an element with a class and children.
 *
 * @param {string} name
 * @param {string} [className]
 * @param {(Node | string)[]} [children]
 */
export function element(name, className, children = []) {
  const node = document.createElement(name);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

/**
 * Returns the address of a link; `undefined` if it must not be one: only absolute addresses of the web and of mail,
 * without user information, which would show another host than it has.
 *
 * @param {string} text
 */
export function safeUrl(text) {
  let url;
  try {
    url = new URL(text);
  } catch {
    return undefined;
  }
  return LINK_SCHEMES.has(url.protocol) && url.username === '' && url.password === '' ? url : undefined;
}

function decodeEntities(text) {
  return text.replace(/&(?:#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6})|(\w{2,8}));/g, (whole, decimal, hex, name) => {
    if (name) return Object.hasOwn(ENTITIES, name) ? ENTITIES[name] : whole;
    const code = decimal ? Number(decimal) : Number.parseInt(hex, 16);
    return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : '\ufffd';
  });
}

/** Returns true if a link's text is the link's own address, so that its host need not be said beside it. */
const isSaid = (host, text) => text === host || text.startsWith(`${host}/`) || safeUrl(text)?.host === host;

function link(href, children, plain) {
  const url = safeUrl(decodeEntities(href));
  if (!url) return element('span', 'md-plain', children);
  const node = element('a', 'md-link', children);
  node.href = url.href;
  node.target = '_blank';
  node.rel = 'noopener noreferrer nofollow';
  node.title = url.href;
  // The text may promise another host than the one that the link has.
  const host = url.host || url.pathname;
  if (isSaid(host, plain.trim())) return node;
  return element('span', 'md-linked', [node, element('span', 'md-host', [` ${host}`])]);
}

function inline(tokens, depth) {
  if (depth > MAX_DEPTH) return [tokens.map((token) => token.raw).join('')];
  return tokens.flatMap((token) => inlineToken(token, depth + 1));
}

function inlineToken(token, depth) {
  switch (token.type) {
    case 'text':
      return token.tokens ? inline(token.tokens, depth) : [decodeEntities(token.text)];
    case 'escape':
      return [decodeEntities(token.text)];
    case 'strong':
    case 'em':
    case 'del':
      return [element(token.type, '', inline(token.tokens, depth))];
    case 'codespan':
      return [element('code', 'md-code', [token.text])];
    case 'br':
      return [element('br')];
    case 'link':
      return [link(token.href, inline(token.tokens, depth), token.text)];
    case 'image':
      return [link(token.href, [`picture: ${decodeEntities(token.text) || token.href}`], '')];
    case 'checkbox':
      return [token.checked ? '☑ ' : '☐ '];
    default:
      return [token.raw];
  }
}

function copyButton(text) {
  const button = element('button', 'md-copy', ['Copy']);
  button.type = 'button';
  button.addEventListener('click', async () => {
    if (!navigator.clipboard) return;
    await navigator.clipboard.writeText(text());
    button.textContent = 'Copied';
    setTimeout(() => (button.textContent = 'Copy'), 1500);
  });
  return button;
}

/** Creates a block of code; `code` is the element with the text. */
function codeBlock(language, text) {
  const code = element('code', '', [text]);
  const pre = element('pre', 'md-pre', [code]);
  pre.tabIndex = 0;
  pre.setAttribute('role', 'region');
  pre.setAttribute('aria-label', language ? `code, ${language}` : 'code');
  const head = element('div', 'md-code-head', [element('span', '', [language]), copyButton(() => code.textContent)]);
  return { node: element('div', 'md-block', [head, pre]), code };
}

function table(token, depth) {
  if ((token.rows.length + 1) * token.header.length > MAX_CELLS) return element('pre', 'md-raw', [token.raw]);
  const cell = (name) => (of, column) => {
    const node = element(name, '', inline(of.tokens, depth));
    const align = token.align[column];
    if (align) node.classList.add(`md-${align}`);
    return node;
  };
  const header = token.header.map(cell('th'));
  header.forEach((node) => (node.scope = 'col'));
  const rows = token.rows.map((row) => element('tr', '', row.map(cell('td'))));
  const head = element('thead', '', [element('tr', '', header)]);
  const scroll = element('div', 'md-scroll', [element('table', 'md-table', [head, element('tbody', '', rows)])]);
  scroll.tabIndex = 0;
  scroll.setAttribute('role', 'region');
  scroll.setAttribute('aria-label', 'table');
  return scroll;
}

function list(token, depth) {
  const items = token.items.map((item) => {
    const isInline = ({ type }) => type === 'text' || type === 'checkbox';
    const blocks = item.tokens.flatMap((token) => (isInline(token) ? inlineToken(token, depth) : block(token, depth)));
    return element('li', item.task ? 'md-task' : '', blocks);
  });
  const node = element(token.ordered ? 'ol' : 'ul', 'md-list', items);
  if (token.ordered && Number.isSafeInteger(token.start) && token.start !== 1) node.start = token.start;
  return node;
}

function heading(token, depth) {
  const node = element('p', `md-h md-h${Math.min(token.depth, 6)}`, inline(token.tokens, depth));
  // The levels of a model's headings follow no order, and an answer is below the page's own.
  node.setAttribute('role', 'heading');
  node.setAttribute('aria-level', '2');
  return node;
}

/** Returns the nodes of a block. */
function block(token, depth) {
  if (depth > MAX_DEPTH) return [element('p', '', [token.raw])];
  switch (token.type) {
    case 'space':
    case 'def':
      return [];
    case 'heading':
      return [heading(token, depth)];
    case 'paragraph':
      return [element('p', '', inline(token.tokens, depth))];
    case 'text':
      return [element('p', '', token.tokens ? inline(token.tokens, depth) : [decodeEntities(token.text)])];
    case 'code':
      return [codeBlock((token.lang ?? '').split(/\s/)[0].slice(0, 40), token.text).node];
    case 'blockquote':
      return [element('blockquote', 'md-quote', token.tokens.flatMap((token) => block(token, depth + 1)))];
    case 'list':
      return [list(token, depth + 1)];
    case 'table':
      return [table(token, depth)];
    case 'hr':
      return [element('hr')];
    default:
      return [element('p', '', [token.raw])];
  }
}

/** Reads blocks; text that the lexer cannot read, such as ten thousand nested quotes, is one paragraph. */
function lex(text) {
  try {
    return Lexer.lex(text, { gfm: true });
  } catch {
    return [{ type: 'raw', raw: text }];
  }
}

function blocks(tokens) {
  try {
    return tokens.flatMap((token) => block(token, 0));
  } catch {
    return [element('p', '', [tokens.map((token) => token.raw).join('')])];
  }
}

const OPEN_FENCE = /^ {0,3}(`{3,}|~{3,})([^\n`]*)\n/;

/** Returns true if the last line of a block of code is a fence that ends it. */
function isClosed(block, fence) {
  const text = block.trimEnd();
  const line = text.slice(text.lastIndexOf('\n') + 1);
  return text.includes('\n') && /^ {0,3}(?:`+|~+)$/.test(line) && line.trimStart().startsWith(fence);
}

/**
 * A text that grows, drawn into an element. The blocks before the last one are final; of the last one, a long block of
 * code and a long paragraph are appended to, and anything else is read again.
 */
export class MarkdownView {
  #root;
  #text = '';
  /** Length of the text whose blocks are final. */
  #final = 0;
  /** Nodes of the last block. @type {Node[]} */
  #tail = [];
  /** The element to which the last block's text is appended, and the length of the text that it has. */
  #open;

  /** @param {HTMLElement} root */
  constructor(root) {
    this.#root = root;
  }

  /**
   * Draws the text.
   *
   * @param {string} text
   * @param {boolean} isComplete True if nothing will be appended.
   */
  update(text, isComplete) {
    if (!text.startsWith(this.#text)) this.#reset();
    this.#text = text;
    const rest = text.slice(this.#final);
    if (!isComplete && this.#append(rest)) return;
    this.#open = undefined;
    const tokens = lex(rest);
    this.#tail.forEach((node) => node.remove());
    const last = isComplete ? tokens.length : Math.max(0, tokens.findLastIndex(({ type }) => type !== 'space'));
    this.#root.append(...blocks(tokens.slice(0, last)));
    this.#final += tokens.slice(0, last).reduce((length, { raw }) => length + raw.length, 0);
    const tail = text.slice(this.#final);
    this.#tail = isComplete ? [] : this.#startTail(tail, tokens.slice(last));
    this.#root.append(...this.#tail);
  }

  #reset() {
    this.#root.replaceChildren();
    this.#final = 0;
    this.#tail = [];
    this.#open = undefined;
  }

  /** Draws the last block, in a form that grows where it is long. */
  #startTail(tail, tokens) {
    const fence = OPEN_FENCE.exec(tail);
    if (fence && tokens.length === 1 && tokens[0].type === 'code' && !isClosed(tail, fence[1])) {
      const body = tail.slice(fence[0].length);
      const { node, code } = codeBlock(fence[2].trim().split(/\s/)[0].slice(0, 40), body);
      this.#open = { node: code.firstChild ?? code.appendChild(new Text('')), fence: fence[1], length: tail.length };
      return [node];
    }
    if (tokens.length === 1 && tokens[0].type === 'paragraph' && tail.length > MAX_OPEN_PARAGRAPH) {
      const node = element('p', '', [tail]);
      this.#open = { node: node.firstChild, length: tail.length };
      return [node];
    }
    return blocks(tokens);
  }

  /** Appends to the last block and returns true, if it goes on. */
  #append(rest) {
    if (!this.#open || rest.length < this.#open.length) return false;
    const { node, fence, length } = this.#open;
    const added = rest.slice(length);
    // The end may be in two pieces, so that a part of what is there already is looked at again.
    const near = rest.slice(Math.max(0, length - 8));
    if (fence ? near.includes(fence) : /\n\s*\n|\n {0,3}(?:[#>*+-]|\d+[.)]|```|~~~)/.test(near)) return false;
    node.appendData(added);
    this.#open.length = rest.length;
    return true;
  }
}

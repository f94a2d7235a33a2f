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
/** Parts at the end of a list, a table or a block of code that may change: the last one, whose beginning may still become the end of the one before. */
const OPEN_PARTS = 2;
/** Maximum depth of lists in which only the last parts of the last block are read again. */
const MAX_OPEN_DEPTH = 8;

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

/** Copies a text, and returns in words whether it is copied. @param {string} text */
export async function copyText(text) {
  let isCopied = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Pages without HTTPS have no clipboard, and others may forbid it: what the browser's own command copies is replaced.
    const replace = (event) => {
      event.preventDefault();
      event.clipboardData.setData('text/plain', text);
    };
    addEventListener('copy', replace, true);
    isCopied = document.execCommand('copy');
    removeEventListener('copy', replace, true);
  }
  return isCopied ? 'Copied' : 'Not copied';
}

function copyButton(text) {
  const button = element('button', 'md-copy', ['Copy']);
  button.type = 'button';
  button.addEventListener('click', async () => {
    button.textContent = await copyText(text());
    setTimeout(() => (button.textContent = 'Copy'), 1500);
  });
  return button;
}

/** Lines with their ends; joined they are the text. */
const linesOf = (text) => text.split(/(?<=\n)/);

/** Creates a block of code; `code` is the element with a text for each line. */
function codeBlock(language, text) {
  const code = element('code', '', linesOf(text));
  const pre = element('pre', 'md-pre', [code]);
  pre.tabIndex = 0;
  pre.setAttribute('role', 'region');
  pre.setAttribute('aria-label', language ? `code, ${language}` : 'code');
  const head = element('div', 'md-code-head', [element('span', '', [language]), copyButton(() => code.textContent)]);
  return { node: element('div', 'md-block', [head, pre]), code };
}

function tableCell({ tokens, header, align }, depth) {
  const node = element(header ? 'th' : 'td', align ? `md-${align}` : '', inline(tokens, depth));
  if (header) node.scope = 'col';
  return node;
}

const tableRow = (cells, depth) => element('tr', '', cells.map((cell) => tableCell(cell, depth)));

const isLarge = (token, rows = 0) => token.type === 'table' && (rows + token.rows.length + 1) * token.header.length > MAX_CELLS;

function table(token, depth) {
  if (isLarge(token)) return element('pre', 'md-raw', [token.raw]);
  const head = element('thead', '', [tableRow(token.header, depth)]);
  const body = element('tbody', '', token.rows.map((row) => tableRow(row, depth)));
  const scroll = element('div', 'md-scroll', [element('table', 'md-table', [head, body])]);
  scroll.tabIndex = 0;
  scroll.setAttribute('role', 'region');
  scroll.setAttribute('aria-label', 'table');
  return scroll;
}

function listItem(item, depth) {
  const isInline = ({ type }) => type === 'text' || type === 'checkbox';
  const blocks = item.tokens.flatMap((token) => (isInline(token) ? inlineToken(token, depth) : block(token, depth)));
  return element('li', item.task ? 'md-task' : '', blocks);
}

function list(token, depth) {
  const node = element(token.ordered ? 'ol' : 'ul', 'md-list', token.items.map((item) => listItem(item, depth)));
  if (token.ordered && Number.isSafeInteger(token.start) && token.start !== 1) node.start = token.start;
  return node;
}

const countLines = (parts) => parts.reduce((count, { raw }) => count + raw.split('\n').length - 1, 0);

/** Returns the place after a number of lines. */
function skipLines(text, from, count) {
  let place = from;
  for (let line = 0; line < count; line += 1) place = text.indexOf('\n', place) + 1;
  return place;
}

/** Returns the items of a list, the rows of a table or the lines of a fenced block of code, and functions that draw them. */
function partsOf(token, depth) {
  if (token.type === 'list') return token.items.map((item) => ({ raw: item.raw, tokens: item.tokens, draw: () => listItem(item, depth) }));
  if (token.type === 'table') return token.rows.map((row) => ({ raw: '\n', draw: () => tableRow(row, 0) }));
  return token.type === 'code' && OPEN_FENCE.test(token.raw) ? linesOf(token.text).map((line) => ({ raw: '\n', draw: () => new Text(line) })) : [];
}

/** Returns the element of a block's parts. */
const partsNode = ({ type }, node) => (type === 'list' ? node : type === 'table' ? node.firstChild.lastChild : node.lastChild.firstChild);

/** Lines of a block before its parts: the head of a table, or a fence. */
const HEAD_LINES = { table: 2, code: 1 };

/** Text before the open parts with which they are read as they are in their block: its head, or an item that parts paragraphs. */
function prefixOf({ type, raw, loose }, indent = '') {
  if (HEAD_LINES[type]) return raw.split('\n', HEAD_LINES[type]).map((line) => `${indent}${line}\n`).join('');
  return loose ? `${indent}${/\S+/.exec(raw)[0]}    x\n\n` : '';
}

const isNotSpace = ({ type }) => type !== 'space';

/** Returns the block at the end of the only item of each list around it; `looseness` has what those lists are. */
function innermost(tokens, looseness) {
  let found = tokens;
  for (const isLoose of looseness) {
    const [list, ...others] = found;
    if (list?.type !== 'list' || list.items.length > 1 || (list.loose && !isLoose) || others.some(isNotSpace)) return undefined;
    const [text, ...below] = list.items[0].tokens;
    if (text.raw.trim() !== 'x') return undefined;
    found = below;
  }
  return found.slice(1).some(isNotSpace) ? undefined : found[0];
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

/** Returns true if the tokens have all of a text; a second definition of a reference has none. */
const areWhole = (tokens, text) => tokens.reduce((length, { raw }) => length + raw.length, 0) === text.length;

/** An unfinished line that may become a list item, a rule, the underline of a heading or the head of a table. */
const MARKER = /^(?: *\d+[.)]?|[-=*+_:| ]+)$/;
/** Blocks that an unfinished line may still belong to, though it looks like another block. */
const OPEN_ENDED = new Set(['paragraph', 'list', 'blockquote', 'table']);

/** Returns the number of tokens that stay as they are while their text grows: those before the last block. */
function countFinal(tokens) {
  let last = tokens.findLastIndex(isNotSpace);
  if (last < 1) return 0;
  const { raw, type } = tokens[last];
  const isBegun = raw.trimEnd().split('\n').length > (type === 'table' ? 2 : 1);
  while (!isBegun && OPEN_ENDED.has(tokens[last - 1]?.type)) last -= 1;
  return last;
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
 * code and a long paragraph are appended to, of a list, of the block at the end of its last item and of a table the last parts are
 * read again, and anything else is read again as a whole. When the text is complete, what is drawn is what the whole text is.
 */
export class MarkdownView {
  #root;
  #text = '';
  /** Length of the text whose blocks are final. */
  #final = 0;
  /** Nodes of the last block. @type {Node[]} */
  #tail = [];
  /** The text that grows with the last block: its `node`, which has `length` of the block, and the `fence` that ends it. */
  #open;
  /**
   * The list or table that is the last block, and the blocks at its end, each in the last item of the one before. `node` is the
   * element of the parts that are read from `from` on behind `prefix`; `drawn` are their nodes, and `settled` is the number of
   * those before.
   */
  #levels = [];

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
    // The lexer's lengths are those of a text whose lines end like this.
    if (text.includes('\r')) text = text.replace(/\r\n?/g, '\n');
    // A frame requested before the end may come after it.
    if (!isComplete && text === this.#text) return;
    // It is shown once its kind is known.
    const line = text.lastIndexOf('\n') + 1;
    if (!isComplete && MARKER.test(text.slice(line))) text = text.slice(0, line);
    // The definition of a reference changes blocks before it.
    if (!text.startsWith(this.#text) || (isComplete && text.includes(']:'))) this.#reset();
    this.#text = text;
    const rest = text.slice(this.#final);
    for (; this.#levels.length > 0; this.#levels.pop()) if (this.#grow(rest, this.#levels.at(-1))) return;
    if (!isComplete && this.#append(rest)) return;
    this.#open = undefined;
    const tokens = lex(rest);
    this.#tail.forEach((node) => node.remove());
    const isWhole = areWhole(tokens, rest);
    const last = isComplete ? tokens.length : isWhole ? countFinal(tokens) : 0;
    this.#root.append(...blocks(tokens.slice(0, last)));
    this.#final += tokens.slice(0, last).reduce((length, { raw }) => length + raw.length, 0);
    const tail = tokens.slice(last);
    this.#tail = isWhole ? this.#startTail(text.slice(this.#final), tail) : blocks(tail);
    this.#root.append(...this.#tail);
  }

  #reset() {
    this.#root.replaceChildren();
    this.#final = 0;
    this.#tail = [];
    this.#open = undefined;
    this.#levels = [];
  }

  /** Draws the last block, in a form that grows where it is long. */
  #startTail(tail, tokens) {
    const [token, ...others] = tokens;
    const fence = OPEN_FENCE.exec(tail);
    if (fence && tokens.length === 1 && token.type === 'code' && !isClosed(tail, fence[1])) {
      const body = tail.slice(fence[0].length);
      const { node, code } = codeBlock(fence[2].trim().split(/\s/)[0].slice(0, 40), body);
      this.#open = { node: code.lastChild, fence: fence[1], length: tail.length };
      return [node];
    }
    if (tokens.length === 1 && token.type === 'paragraph' && tail.length > MAX_OPEN_PARAGRAPH) {
      const node = element('p', '', [tail]);
      this.#open = { node: node.firstChild, length: tail.length };
      return [node];
    }
    const nodes = blocks(tokens);
    if (tokens.length === 1 && isLarge(token)) this.#open = { node: nodes[0].firstChild, length: tail.length };
    const isLast = !this.#open && token && token.type !== 'code' && !others.some(isNotSpace);
    if (isLast) this.#addLevel({ block: nodes[0], token, looseness: [], stubs: '', indent: '', from: 0 }, tail);
    return nodes;
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

  /** Goes on with the parts of the last block, if it has some. `from` is the place of the block. */
  #addLevel({ token, block, ...level }, rest) {
    const { type, ordered, loose } = token;
    const parts = partsOf(token, level.looseness.length + 1);
    if (parts.length === 0 || isLarge(token)) return;
    const node = partsNode(token, block);
    const from = skipLines(rest, level.from, HEAD_LINES[type] ?? 0);
    this.#levels.push({ ...level, node, type, ordered, loose, prefix: level.stubs + prefixOf(token, level.indent), from, settled: 0, drawn: [...node.childNodes] });
    this.#settle(this.#levels.at(-1), parts, rest);
  }

  /** Draws the last parts of a block again and returns true, if it goes on in the same form. */
  #grow(rest, level) {
    const { node, type, ordered, loose, looseness, prefix, from, settled, drawn } = level;
    const text = prefix + rest.slice(from);
    const tokens = lex(text);
    const token = innermost(tokens, looseness);
    if (token?.type !== type || token.ordered !== ordered || token.loose !== loose || !areWhole(tokens, text) || isLarge(token, settled)) return false;
    const parts = partsOf(token, looseness.length + 1).slice(loose ? 1 : 0);
    drawn.forEach((node) => node.remove());
    level.drawn = parts.map(({ draw }) => draw());
    node.append(...level.drawn);
    this.#settle(level, parts, rest);
    return true;
  }

  /** Takes all of the drawn parts but the last ones for final, and goes on with the block at the end of the last one. */
  #settle(level, parts, rest) {
    const settled = parts.slice(0, -OPEN_PARTS);
    level.from = skipLines(rest, level.from, countLines(settled));
    level.settled += settled.length;
    level.drawn.splice(0, settled.length);
    const { raw, tokens = [] } = parts.at(-1) ?? {};
    const place = tokens.findLastIndex(isNotSpace);
    const token = tokens[place];
    // An item with another text reads what is below it in the same way, if its text begins in the same column.
    const marker = /^ {0,3}(?:[*+-]|\d{1,9}[.)]) {1,4}(?=\S)/.exec(raw)?.[0];
    if (!token || !marker || level.looseness.length >= MAX_OPEN_DEPTH) return;
    const looseness = [...level.looseness, level.loose];
    const stubs = `${level.stubs}${level.indent}${marker}x\n`;
    const indent = level.indent + ' '.repeat(marker.length);
    const from = skipLines(rest, level.from, countLines(parts.slice(settled.length, -1)) + countLines(tokens.slice(0, place)));
    this.#addLevel({ block: level.node.lastChild.lastChild, token, looseness, stubs, indent, from }, rest);
  }
}

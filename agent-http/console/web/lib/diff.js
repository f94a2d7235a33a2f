/** The difference of two texts by words, and its drawing. */

import { html } from '../vendor/ui.js';

/** Maximum number of comparisons. Longer differences are shown as one replaced piece. */
const MAX_COMPARISONS = 1_000_000;
/** Length from which an equal text is shortened, and the length that is kept at each end. */
const LONG = 260;
const KEPT = 90;

/** Words, spaces and marks, which joined again are the text. */
const split = (text) => text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? [];

/** Returns the lengths of the longest common subsequences of the ends of two lists, row by row. */
function commonLengths(before, after) {
  const width = after.length + 1;
  const lengths = new Uint32Array((before.length + 1) * width);
  for (let row = before.length - 1; row >= 0; row -= 1) {
    for (let column = after.length - 1; column >= 0; column -= 1) {
      const place = row * width + column;
      lengths[place] = before[row] === after[column] ? lengths[place + width + 1] + 1 : Math.max(lengths[place + width], lengths[place + 1]);
    }
  }
  return lengths;
}

/** Returns the pieces of the middle, between equal beginnings and ends. */
function middle(before, after) {
  const found = [];
  if (before.length * after.length > MAX_COMPARISONS) {
    if (before.length > 0) found.push(['del', before.join('')]);
    if (after.length > 0) found.push(['ins', after.join('')]);
    return found;
  }
  const width = after.length + 1;
  const lengths = commonLengths(before, after);
  let [row, column] = [0, 0];
  while (row < before.length || column < after.length) {
    if (row < before.length && column < after.length && before[row] === after[column]) {
      found.push(['same', before[row]]);
      row += 1;
      column += 1;
    } else if (row < before.length && (column === after.length || lengths[(row + 1) * width + column] >= lengths[row * width + column + 1])) {
      found.push(['del', before[row]]);
      row += 1;
    } else {
      found.push(['ins', after[column]]);
      column += 1;
    }
  }
  return found;
}

/**
 * Returns the pieces of two texts in order: `['same' | 'del' | 'ins', text]`. Those that are not `ins` make up the first text,
 * those that are not `del` the second.
 *
 * @param {string} before
 * @param {string} after
 * @returns {[string, string][]}
 */
export function diff(before, after) {
  const [left, right] = [split(before), split(after)];
  let start = 0;
  while (start < left.length && start < right.length && left[start] === right[start]) start += 1;
  let end = 0;
  while (end < left.length - start && end < right.length - start && left.at(-1 - end) === right.at(-1 - end)) end += 1;
  const pieces = [
    ['same', left.slice(0, start).join('')],
    ...middle(left.slice(start, left.length - end), right.slice(start, right.length - end)),
    ['same', left.slice(left.length - end).join('')],
  ];
  const joined = [];
  for (const [kind, text] of pieces) {
    if (text === '') continue;
    if (joined.at(-1)?.[0] === kind) joined.at(-1)[1] += text;
    else joined.push([kind, text]);
  }
  return joined;
}

/** Leaves out the inside of a long text that both have. */
function shorten(text, isFirst, isLast) {
  if (text.length <= LONG) return text;
  const [from, to] = [isFirst ? '' : text.slice(0, KEPT), isLast ? '' : text.slice(-KEPT)];
  return html`${from}<span class="diff-gap">${from && ' '}… ${(text.length - from.length - to.length).toLocaleString('en')} equal characters …${to && ' '}</span>${to}`;
}

/** Two texts as one, with removed and inserted pieces marked. */
export function Diff({ before, after, label }) {
  const pieces = diff(before, after);
  return html`<pre class="code wrap diff" tabindex="0" role="region" aria-label=${label}>${pieces.map(([kind, text], place) => {
    if (kind === 'same') return html`<span key=${place}>${shorten(text, place === 0, place === pieces.length - 1)}</span>`;
    return kind === 'del' ? html`<del key=${place}>${text}</del>` : html`<ins key=${place}>${text}</ins>`;
  })}</pre>`;
}

/** Two prompts beside each other: their parts and tools, with what has changed between them. */

import { html } from '../vendor/ui.js';
import { Diff } from './diff.js';
import { number } from './format.js';
import { Code, Fold } from './ui.js';

const STATES = { same: 'unchanged', changed: 'changed', added: 'new', removed: 'left out' };

/** Returns what both lists have in the order of the second one: `{key, state, before, after}`. `sha256` tells what has changed. */
function compare(before = [], after = [], keyOf) {
  const old = new Map(before.map((one) => [keyOf(one), one]));
  const found = after.map((one) => {
    const key = keyOf(one);
    const was = old.get(key);
    old.delete(key);
    return { key, state: was ? (was.sha256 === one.sha256 ? 'same' : 'changed') : 'added', before: was, after: one };
  });
  return [...found, ...[...old].map(([key, one]) => ({ key, state: 'removed', before: one }))];
}

/** Compares the parts of two prompts. */
export const compareParts = (before, after) => compare(before, after, ({ source, id }) => `${source} ${id}`);

/** The parts of two prompts. With `isAlone` there is no earlier prompt, and nothing is called new. */
export function Parts({ parts, isAlone }) {
  return html`<ol class="plain">${parts.map((part) => html`<${PartRow} key=${part.key} part=${part} isAlone=${isAlone} />`)}</ol>`;
}

function PartRow({ part: { state, before, after }, isAlone }) {
  const { id, source, content, tokens, sha256 } = after ?? before;
  const cost = state === 'changed' ? `${number(before.tokens)} → ${number(after.tokens)}` : number(tokens);
  const isDiff = state === 'changed' && before.content !== undefined && after.content !== undefined;
  const summary = html`<span class="tool-name">${id}</span>${!isAlone && state !== 'same' && html`<span class=${`chip state-${state}`}>${STATES[state]}</span>`}<span class="meta">${source} · ${cost} tokens</span>`;
  return html`<li><${Fold} kind=${`part-${state}`} open=${isDiff} summary=${summary}>
    ${isDiff ? html`<${Diff} before=${before.content} after=${after.content} label=${`difference of ${id}`} />`
      : content === undefined ? html`<p class="muted small">The text was not kept. Its SHA-256 is <code class="hash">${sha256}</code></p>`
        : html`<${Code} text=${content} label=${`part ${id}`} wrap />`}
  <//></li>`;
}

/** The tools of two prompts. */
export function Tools({ before, after = [] }) {
  const all = compare(before ?? after, after, ({ name }) => name).sort((one, other) => one.key.localeCompare(other.key));
  return html`<h2 class="label">Tools</h2>
    ${all.length === 0 ? html`<p class="muted">None.</p>` : html`<ul class="chips plain">${all.map(({ key, state }) => html`<li key=${key} class=${`chip state-${state}`}><code>${key}</code>${state !== 'same' && html`<span class="visually-hidden">, ${STATES[state]}</span>`}</li>`)}</ul>`}`;
}

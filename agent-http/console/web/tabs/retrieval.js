/** The Retrieval tab: what the message would retrieve from the documents, and why. */

import { html } from '../vendor/ui.js';
import { number } from '../lib/format.js';

const WHY = {
  kept: 'in the prompt', gate: 'not relevant enough', budget: 'no room', duplicate: 'said already',
  perDocument: 'enough of this document', unavailable: 'changed meanwhile',
};

/** Reasons for which a search went without vectors, where the name does not say it. */
const WITHOUT_VECTORS = {
  noVectors: 'no document has any yet', meaninglessVectors: 'those of these documents have no relation to their texts',
  invalidAnswer: 'the model’s answer was none', paused: 'the model failed a moment ago',
};

export function RetrievalTab({ preview }) {
  const { retrieval } = preview;
  if (!retrieval) {
    return html`<p class="muted">Nothing is searched for this message: the agent has no documents beyond those that stand in the prompt, retrieval is off for it or for you, or there is no message yet.</p>`;
  }
  const { terms = [], fragments = [], skipped = [], tokens, relevance, embedder, embedderSkipped } = retrieval;
  const count = fragments.filter(({ kept }) => kept).length;
  return html`
    <p class="figure"><strong>${count}</strong> <span class="muted">${count === 1 ? 'fragment' : 'fragments'}, ${number(tokens)} tokens${embedder ? `, by words and ${embedder}` : ', by words'}</span></p>
    ${embedderSkipped && html`<p class="muted small">Without vectors: ${WITHOUT_VECTORS[embedderSkipped] ?? embedderSkipped}.</p>`}
    ${relevance !== undefined && html`<p class="muted small">Relevance of the best hit: ${relevance.toFixed(2)}</p>`}
    ${terms.length > 0 && html`<h2 class="label">Query</h2><p class="chips">${[...new Set(terms.map(({ term }) => term))].map((word) => html`<span key=${word} class="chip" title=${terms.filter(({ term }) => term === word).map(({ weight, from }) => `weight ${weight}, from the ${from}`).join('; ')}>${word}</span>`)}</p>`}
    <h2 class="label">Fragments</h2>
    <ol class="plain">${fragments.map((fragment) => html`<${Fragment} key=${fragment.rank} fragment=${fragment} />`)}</ol>
    ${skipped.length > 0 && html`<h2 class="label">Not searched</h2><ul class="plain">${skipped.map(({ id, why }) => html`<li key=${id}><code>${id}</code> <span class="muted">${why}</span></li>`)}</ul>`}`;
}

/** The scores of a hit that there are, in the order in which they come to be. */
const scores = ({ lexical, dense, fused, relevance }) => [['by words', lexical], ['by vectors', dense], ['together', fused], ['relevance', relevance]]
  .filter(([, value]) => value !== undefined).map(([name, value]) => `${name} ${value.toFixed(3)}`).join(' · ');

function Fragment({ fragment: hit }) {
  const { rank, title, documentId, heading, fused, relevance, matched = [], kept, why, start, end, page, fragment } = hit;
  return html`<li class=${`fragment ${kept ? 'kept' : ''}`}>
    <p><span class="muted">${rank}.</span> <strong>${title ?? documentId}</strong> ${heading && html`<span class="muted">${heading}</span>`}</p>
    <span class="bar"><span style=${{ width: `${Math.min(100, Math.max(1, (relevance ?? fused ?? 0) * 100))}%` }}></span></span>
    <p class="meta"><span class=${kept ? 'good' : ''}>${WHY[why] ?? why}${fragment ? `, as [${fragment}]` : ''}</span> · ${page ? `page ${page}, ` : ''}characters ${start}–${end}${matched.length > 0 ? ` · ${[...new Set(matched)].join(', ')}` : ''}</p>
    <p class="meta">${scores(hit)}</p>
  </li>`;
}

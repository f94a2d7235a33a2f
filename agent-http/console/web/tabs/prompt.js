/** The Prompt tab: the parts of the prompt with their sizes, the line up to which a cache holds, and the payload. */

import { html, useRef, useState } from '../vendor/ui.js';
import { agentId, latestRuns, previewRequest } from '../lib/chat.js';
import { counted, number, pretty, size } from '../lib/format.js';
import { address, has } from '../lib/store.js';
import { Code, Copy, Fold, Selection, lazy, useLoad } from '../lib/ui.js';

/** Words for the stability of a part of the prompt. */
const LASTING = { role: 'fixed by the role', agent: 'fixed by the agent’s data', session: 'fixed for the conversation', turn: 'new each turn' };

/** Colours of the sources, by the order in which they come up. */
const HUES = 8;
const KNOWN = ['role', 'council', 'documents', 'memory', 'tool-context', 'caller', 'page', 'retrieval'];
const hue = (source) => {
  const known = KNOWN.indexOf(source);
  return known >= 0 ? known : [...source].reduce((sum, letter) => sum + letter.codePointAt(0), 0) % HUES;
};

const Diff = lazy(() => import('../lib/diff.js'), 'Diff');
const RunPrompt = lazy(() => import('../lib/compare.js'), 'RunPrompt');

/** Returns true if the part is a message, whose text a preview does not have apart. */
const isMessage = (id) => id.startsWith('messages[');

/** Returns true if the part is the latest message, which has the time and is new in every prompt. */
const isLatest = (id, { messages }) => id === `messages[${messages - 1}]`;

/** The texts of an agent's latest prompt that equals what its last run was sent, by agent: parts, and tools as JSON. */
const sent = new Map();

/** Returns the texts of a preview that a cached prefix depends on. */
function textsOf({ systemPromptParts, tools = [] }) {
  const parts = systemPromptParts.map(({ id, content }) => [id, content]);
  return new Map([...parts, ...tools.map((tool) => [`tool:${tool.name}`, JSON.stringify(tool, null, 2)])]);
}

/**
 * Returns the part that has broken the cached prefix, with its texts before and now; `undefined` if none has. A preview without
 * one is what the last run was sent, and is kept to compare later ones with.
 */
function useBroken(preview) {
  const { firstChangedPart: id } = preview.cache ?? {};
  const last = useRef(undefined);
  if (last.current !== preview) {
    last.current = preview;
    if (!id || isMessage(id)) sent.set(agentId.value, textsOf(preview));
  }
  if (!id || isLatest(id, preview.budget)) return undefined;
  return { id, before: sent.get(agentId.value)?.get(id), isKnown: sent.has(agentId.value), after: textsOf(preview).get(id) };
}

/** Returns the thread's latest run with a prompt; `undefined` if it has none. */
const latestRun = () => latestRuns().find(({ startedAt }) => startedAt)?.id;

/** The part that has broken the cached prefix, with the difference of its text. */
function Broken({ broken: { id, after, ...seen } }) {
  const isTool = id.startsWith('tool:');
  // The record of a run has the texts of its parts, where the server keeps them, and of its tools none.
  const latest = seen.isKnown || isTool || isMessage(id) ? undefined : latestRun();
  const texts = useLoad(async (signal) => latest && (await import('../lib/compare.js')).keptTexts(latest, signal), latest).data;
  const [isKnown, before] = texts ? [true, texts.get(id)] : [seen.isKnown, seen.before];
  const name = isTool ? html`the tool <code>${id.slice(5)}</code>` : html`<code>${id}</code>`;
  if (isMessage(id)) return html`<section class="note note-broke" aria-label="Cache"><p><strong>The cached prompt breaks here:</strong> ${name}. All that follows is read again.</p></section>`;
  const change = !isKnown ? 'has changed' : before === undefined ? 'is new' : after === undefined ? 'has gone' : 'has changed';
  return html`<section class="note note-broke" aria-label="Cache">
    <p><strong>The cached prompt breaks here:</strong> ${name} ${change} since the last run. All that follows is read again.</p>
    ${isKnown ? html`<${Diff} before=${before ?? ''} after=${after ?? ''} label=${`difference of ${id}`} />`
      : html`<p class="muted small">Neither this page nor the server has the text of the last run to compare.</p>`}
  </section>`;
}

export function PromptTab({ preview, run }) {
  const broken = useBroken(preview);
  const { systemPromptParts: parts, combinedContextParts: contextParts = [], budget, cache = {}, trimmed = [] } = preview;
  return html`
    <${Budget} budget=${budget} cache=${cache} />
    <${Proof} preview=${preview} run=${run} />
    ${broken && html`<${Broken} key=${broken.id} broken=${broken} />`}
    <h2 class="label">System prompt</h2>
    <${Parts} parts=${parts} cache=${cache} />
    ${contextParts.length > 0 && html`<h2 class="label">Before the latest message</h2><${Parts} parts=${contextParts} cache=${{}} />`}
    ${trimmed.length > 0 && html`<p class="note">Left out of the history to fit the budget: ${trimmed.map(({ messages, tokens }) => `${counted(messages, 'message')}, ${counted(tokens, 'token')}`).join('; ')}.</p>`}
    <${Fold} summary=${`Backend: ${preview.selection.chosen}`}><${Selection} rules=${preview.selection.rules} /><//>
    <${Payload} preview=${preview} />
    ${run && run.status !== 'running' && has('runEvents') && html`<${Recorded} key=${run.runId} runId=${run.runId} />`}`;
}

/** The prompt of the inspected run, which is loaded when it is opened. */
function Recorded({ runId }) {
  const [isOpen, setOpen] = useState(false);
  return html`<${Fold} summary="Prompt of the inspected run" onToggle=${({ target }) => setOpen(target.open)}>${isOpen && html`<${RunPrompt} runId=${runId} />`}<//>`;
}

function Budget({ budget, cache }) {
  const { promptTokens, maxPromptTokens, tokens } = budget;
  const share = (value) => `${Math.min(100, (value / Math.max(1, promptTokens)) * 100)}%`;
  const kinds = [['system', 'System'], ['tools', 'Tools'], ['messages', 'Messages']];
  return html`<section aria-label="Budget">
    <p class="figure"><strong>${number(promptTokens)}</strong> <span class="muted">of ${number(maxPromptTokens)} tokens</span></p>
    <div class="stack" aria-hidden="true">
      ${kinds.map(([kind]) => html`<span key=${kind} class=${`kind-${kind}`} style=${{ width: share(tokens[kind] ?? 0) }}></span>`)}
    </div>
    <dl class="legend">
      ${kinds.map(([kind, name]) => html`<div key=${kind}><dt><i class=${`swatch kind-${kind}`}></i>${name}</dt><dd>${number(tokens[kind] ?? 0)}</dd></div>`)}
      <div><dt>Stable prefix</dt><dd>${size(cache.stablePrefixBytes ?? 0)}</dd></div>
      ${cache.reusableShare !== undefined && html`<div><dt>Sent before</dt><dd>${Math.floor(cache.reusableShare * 100)} %</dd></div>`}
    </dl>
  </section>`;
}

/** Tells whether the shown request is the one that the run was sent. */
function Proof({ preview, run }) {
  const sent = run?.prompt?.requestSha256;
  if (!sent) return null;
  const isSame = sent === preview.requestSha256;
  return html`<p class=${`note ${isSame ? 'note-good' : ''}`}>
    ${isSame ? 'This is what was sent' : 'The inspected run sent another request'}: <code>${sent.slice(0, 12)}</code>
    ${!isSame && html` <span class="muted">this preview is <code>${preview.requestSha256.slice(0, 12)}</code>: the time, the message or the history differ</span>`}
  </p>`;
}

function Parts({ parts, cache }) {
  const largest = Math.max(1, ...parts.map(({ tokens }) => tokens));
  let bytes = 0;
  let isDrawn = cache.stablePrefixBytes === undefined;
  const rows = [];
  for (const part of parts) {
    if (!isDrawn && bytes >= cache.stablePrefixBytes) {
      isDrawn = true;
      rows.push(html`<li key="cache" class="cache-line"><span>equal in every turn, up to here</span></li>`);
    }
    rows.push(html`<${Part} key=${`${part.source}-${part.id}`} part=${part} largest=${largest} broke=${part.id === cache.firstChangedPart} />`);
    // Parts are joined by an empty line.
    bytes += part.bytes + 2;
  }
  if (!isDrawn && parts.length > 0) rows.push(html`<li key="cache" class="cache-line"><span>equal in every turn</span></li>`);
  return html`<ol class="parts">${rows}</ol>`;
}

function Part({ part, largest, broke }) {
  const { id, source, stability, tokens, bytes, sha256, content, origin } = part;
  return html`<li class=${`part hue-${hue(source)} ${broke ? 'broke' : ''}`}>
    <details>
      <summary>
        <span class="part-line"><span class="part-name">${id}</span><span class="meta">${number(tokens)}</span></span>
        <span class="bar"><span style=${{ width: `${Math.max(1, (tokens / largest) * 100)}%` }}></span></span>
        <span class="part-line"><span class="meta">${source} · ${LASTING[stability] ?? stability}${broke ? ' · changed since the last run' : ''}</span><code class="meta">${sha256.slice(0, 8)}</code></span>
      </summary>
      ${origin && html`<p class="meta">${origin.kind} ${origin.title ?? origin.id ?? ''}${origin.omittedBytes ? ` · ${size(origin.omittedBytes)} left out` : ''}</p>`}
      <${Code} text=${content} label=${`part ${id}`} wrap />
      <div class="row between"><span class="meta">${size(bytes)}</span><${Copy} text=${content} /></div>
    </details>
  </li>`;
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** Returns the command by which a shell asks for this preview, with a token in a variable. */
const command = () => `curl ${quoted(address('api/svcchat/previewPrompt'))} -H "Authorization: Bearer $TOKEN" --json ${quoted(JSON.stringify(previewRequest()))}`;

function Payload({ preview }) {
  const { payload, requestSha256 } = preview;
  const text = typeof payload === 'string' ? pretty(payload) : JSON.stringify(payload, null, 2);
  return html`<${Fold} summary=${html`Payload <code class="meta">${requestSha256.slice(0, 12)}</code>`}>
    <${Code} text=${text} label="payload" />
    <div class="row between"><code class="meta hash">${requestSha256}</code><span><${Copy} text=${text} /><${Copy} text=${command} label="Copy as curl" /></span></div>
  <//>`;
}

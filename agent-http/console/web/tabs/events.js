/** The Events tab: each event of a run with its time, as a list and as a waterfall. */

import { html, useEffect, useLayoutEffect, useRef, useState } from '../vendor/ui.js';
import { chatLink, inspect, latestRuns, runs } from '../lib/chat.js';
import { duration, number, timeOfDay } from '../lib/format.js';
import { keptRun, total } from '../lib/run.js';
import { address, has, route } from '../lib/store.js';
import { Code, Copy, ErrorNote, Facts, Search, options, useLoad } from '../lib/ui.js';
import { readCost } from '../lib/usage.js';

/** Height of a row in pixels, as in the style sheet: only the rows in view are in the document. */
const ROW = 28;
const OVERSCAN = 8;
/** Maximum number of phases that are drawn. */
const MAX_BARS = 60;

export function EventsTab({ run }) {
  const [filter, setFilter] = useState('');
  const [chosen, setChosen] = useState({});
  if (!run) return html`<${RunPicker} /><p class="muted">Send a message: each event of the run is listed here with its time. Older runs can be chosen, as long as the server keeps their events.</p>`;
  // A component with a state of its own is drawn again if a property has changed, and a run is the same object for all of its time.
  const version = run.version.value;
  const words = filter.trim().toLowerCase();
  const { query } = route.value;
  const linked = query.get('run') === run.runId ? Number(query.get('event') ?? -1) : undefined;
  // The event of a link that is followed later is chosen in place of this one.
  const selected = chosen.run === run && chosen.query === query ? chosen.number : linked;
  const one = run.events[selected]?.event;
  const stored = runs.value.get(run.runId);
  return html`
    <${RunPicker} selected=${run.runId} />
    ${run.isReplay && html`<${ErrorNote} error=${run.error} reload=${run.error instanceof Error && (() => inspect(run.runId))} />`}
    <${Figures} run=${run} version=${version} stored=${stored} />
    <${Waterfall} ...${run.isReplay ? timedPhases(stored?.timing) : phases(run)} />
    <${Attempts} attempts=${run.attempts.length > 0 ? run.attempts : stored?.attempts ?? []} version=${version} />
    ${run.isReplay && !stored?.timing && html`<p class="muted small">These events were recorded without their times.</p>`}
    <div class="row between">
      <${Search} label="Filter the events" hint="Filter" value=${filter} onSearch=${setFilter} />
      <${Copy} label="Copy all" text=${() => run.events.map(({ event }) => JSON.stringify(event)).join('\n')} />
    </div>
    <${EventList} run=${run} version=${version} words=${words} selected=${selected} linked=${linked} onSelect=${(number) => setChosen({ run, query, number })} />
    ${one && html`<div class="row between"><h2 class="label">Event ${selected}</h2>
      ${has('runEvents') && html`<${Copy} label="Copy link" text=${() => address(chatLink({ tab: 'events', run: run.runId, event: selected }))} />`}</div><${Code} value=${one} label=${`event ${selected}`} wrap />`}`;
}

/** A choice among the runs of the thread, the newest first. */
function RunPicker({ selected }) {
  const all = latestRuns();
  if (!has('runEvents') || all.length === 0) return null;
  const isKnown = all.some(({ id }) => id === selected);
  return html`<label class="run-pick"><span class="label">Run</span><select value=${isKnown ? selected : ''} onChange=${(event) => event.target.value && inspect(event.target.value)}>
    ${options([...(isKnown ? [] : [['', selected ? 'the run in progress' : 'choose one']]),
      ...all.map(({ id, state, startedAt, model }) => [id, [timeOfDay(startedAt), state, !keptRun(id) && 'recorded', model].filter(Boolean).join(' · ')])])}
  </select></label>`;
}

/** The figures of a run: from its events, or for a recorded run from the server's. */
function Figures({ run, stored }) {
  const usage = run.usage ?? stored?.usage;
  const cached = total(usage, 'cachedInputTokens');
  const input = total(usage, 'inputTokens');
  const output = total(usage, 'outputTokens');
  const { timing } = stored ?? {};
  const took = run.isReplay ? stored?.endedAt && new Date(stored.endedAt) - new Date(stored.startedAt) : run.endedAt;
  const first = run.isReplay ? timing?.firstContentMs : run.timeToFirst;
  const written = run.isReplay && took && first !== undefined ? took - first : undefined;
  const rate = run.tokensPerSecond ?? (written > 50 && output ? output / (written / 1000) : undefined);
  const isOver = run.isReplay || run.status !== 'running';
  const cost = useLoad((signal) => (isOver && has('usage') ? readCost(run.runId, signal) : Promise.resolve(undefined)), `${run.runId} ${isOver}`);
  const facts = [
    ['First token', duration(first)],
    ['Whole run', duration(took || undefined)],
    ['Tokens/s', rate ? rate.toFixed(1) : '–'],
    ['Cached', input && cached !== undefined ? `${Math.round((cached / input) * 100)} %` : '–'],
    ['Output', output === undefined ? '–' : `${number(output)} tokens`],
    ...(has('usage') ? [['Cost', cost.data ?? '–']] : []),
    ['Events', number(run.events.length)],
  ];
  return html`<${Facts} facts=${facts} kind="figures" />`;
}

/** The phases of a run as bars: name, begin, end and kind. */
function phases(run) {
  const now = run.endedAt ?? run.now();
  const bars = [];
  if (run.acceptedAt !== undefined) bars.push({ name: 'accepted', from: 0, to: run.acceptedAt, kind: 'wait' });
  for (const { name, from, to = now } of run.steps.values()) bars.push({ name, from, to, kind: 'round' });
  for (const part of run.parts) {
    const name = part.kind === 'tool' ? part.name : part.kind;
    bars.push({ name, from: part.startedAt, to: part.endedAt ?? now, kind: part.kind });
  }
  return { bars: bars.sort((one, other) => one.from - other.from).slice(0, MAX_BARS), end: Math.max(1, now) };
}

/** The phases of a recorded run, by the times that the server has kept with it. */
function timedPhases(timing) {
  if (!timing) return { bars: [], end: 1 };
  const { queuedMs = 0, preparedMs, rounds = [], tools = [] } = timing;
  const bars = [];
  if (queuedMs > 0) bars.push({ name: 'queued', from: 0, to: queuedMs, kind: 'wait' });
  if (preparedMs !== undefined) bars.push({ name: 'prompt', from: queuedMs, to: preparedMs, kind: 'wait' });
  rounds.forEach(({ startedMs, firstContentMs, endedMs = startedMs, attempts }, place) => {
    bars.push({ name: `round-${place + 1}${attempts > 1 ? ` (${attempts} attempts)` : ''}`, from: startedMs, to: endedMs, kind: 'round' });
    if (firstContentMs !== undefined) bars.push({ name: 'text', from: firstContentMs, to: endedMs, kind: 'text' });
  });
  for (const { name, startedMs, endedMs = startedMs } of tools) bars.push({ name, from: startedMs, to: endedMs, kind: 'tool' });
  return { bars: bars.sort((one, other) => one.from - other.from).slice(0, MAX_BARS), end: Math.max(1, ...bars.map(({ to }) => to)) };
}

function Waterfall({ bars, end }) {
  if (bars.length === 0) return null;
  return html`<table class="waterfall">
    <caption class="visually-hidden">Phases of the run</caption>
    <colgroup><col /><col /><col /></colgroup>
    <thead class="visually-hidden"><tr><th scope="col">Phase</th><th scope="col">Bar</th><th scope="col">Duration</th></tr></thead>
    <tbody>${bars.map(({ name, from, to, kind }, place) => html`<tr key=${place}>
      <th scope="row" title=${name}>${name}</th>
      <td class="track"><span class=${`phase phase-${kind}`} style=${{ marginLeft: `${(from / end) * 100}%`, width: `${Math.max(0.6, ((to - from) / end) * 100)}%` }}></span></td>
      <td class="meta">${duration(to - from)}</td>
    </tr>`)}</tbody>
  </table>`;
}

/** The attempts at calls that were repeated or made with a fallback, each with its outcome and the hash of its request. */
function Attempts({ attempts }) {
  if (attempts.length === 0) return null;
  return html`<h2 class="label" id="model-attempts">Attempts</h2>
    <ol class="attempts" aria-labelledby="model-attempts">${attempts.map((attempt, place) => {
      const { round, entry, provider, model, requestSha256: hash } = attempt;
      return html`<li key=${place}>
        <div class="row between"><strong>${model}</strong><span class="meta">round ${round} · ${provider}${entry > 0 ? ` · fallback ${entry}` : ''}</span></div>
        <div class="row between"><span>${outcome(attempt)}</span>
          ${hash && html`<span class="row"><code class="meta" title=${hash}>${hash.slice(0, 8)}</code><${Copy} text=${hash} label="Copy hash" /></span>`}</div>
      </li>`;
    })}</ol>`;
}

/** The outcome of an attempt in words. */
function outcome({ attempt, reason, status, waitedMs }) {
  const wait = waitedMs > 0 ? ` after a pause of ${duration(waitedMs)}` : '';
  if (attempt === undefined) return `left out${reason ? `: ${reason}` : ''}`;
  return reason ? `${reason}${status ? ` (${status})` : ''}${wait}` : `answered${wait}`;
}

/**
 * Returns the numbers of the events that have the words; `undefined` if all are shown. Each event is searched once, so that the
 * cost depends on new events only.
 */
function useMatching(run, words) {
  const known = useRef({});
  if (words === '') return undefined;
  if (known.current.run !== run || known.current.words !== words) known.current = { run, words, searched: 0, numbers: [] };
  const { current } = known;
  for (; current.searched < run.events.length; current.searched += 1) {
    const text = JSON.stringify(run.events[current.searched].event).toLowerCase();
    if (text.includes(words)) current.numbers.push(current.searched);
  }
  return current.numbers;
}

function EventList({ run, words, selected, linked, onSelect }) {
  const numbers = useMatching(run, words);
  const count = numbers?.length ?? run.events.length;
  const numberAt = (place) => (numbers ? numbers[place] : place);
  const root = useRef(null);
  const [view, setView] = useState({ top: 0, height: 400 });
  useLayoutEffect(() => setView({ top: root.current.scrollTop, height: root.current.clientHeight || 400 }), []);
  useEffect(() => {
    if (linked < run.events.length) root.current.scrollTop = (linked - 2) * ROW;
  }, [linked, linked < run.events.length]);
  const first = Math.max(0, Math.floor(view.top / ROW) - OVERSCAN);
  const last = Math.min(count, Math.ceil((view.top + view.height) / ROW) + OVERSCAN);
  const onScroll = ({ target }) => setView({ top: target.scrollTop, height: target.clientHeight });
  const move = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || count === 0) return;
    event.preventDefault();
    const place = (numbers ? numbers.indexOf(selected) : (selected ?? -1)) + step;
    const next = Math.min(count - 1, Math.max(0, place));
    onSelect(numberAt(next));
    root.current.scrollTop = Math.min(next * ROW, Math.max(root.current.scrollTop, (next + 1) * ROW - view.height));
  };
  const shown = Array.from({ length: Math.max(0, last - first) }, (_, place) => first + place);
  const active = shown.some((place) => numberAt(place) === selected) ? `event-${selected}` : undefined;
  return html`<div class="events" ref=${root} onScroll=${onScroll} onKeyDown=${move} tabindex="0" role="listbox" aria-label="Events" aria-activedescendant=${active}>
    <div class="events-space" role="presentation" style=${{ height: `${count * ROW}px` }}>
      ${shown.map((place) => {
        const number = numberAt(place);
        const { at, event } = run.events[number];
        return html`<div key=${number} id=${`event-${number}`} role="option" aria-selected=${number === selected} class="event-row"
          aria-setsize=${count} aria-posinset=${place + 1} style=${{ top: `${place * ROW}px` }} onClick=${() => onSelect(number)}
        ><span class="meta">${number}</span><span class=${`event-type type-${kindOf(event.type)}`}>${event.type}</span><span class="event-text">${summary(event)}</span><span class="meta">${run.isReplay ? '' : duration(at)}</span></div>`;
      })}
    </div>
  </div>`;
}

const kindOf = (type) => (/^(TEXT|REASONING|TOOL|RUN|STEP|CUSTOM)/.exec(type)?.[0] ?? 'other').toLowerCase();

/** The word that distinguishes an event from others of its type. */
function summary(event) {
  return String(event.delta ?? event.toolCallName ?? event.stepName ?? event.name ?? event.code ?? event.content ?? '').slice(0, 80);
}

/** What calls of models have used and cost: a chart by day, a table by group, a file, and the user's limits. */

import { html, useMemo, useState } from '../vendor/ui.js';
import { csv, save } from '../lib/csv.js';
import { counted, number } from '../lib/format.js';
import { Meter, useFirst } from '../lib/lists.js';
import { agentName, agentNames, agents, href, route, session } from '../lib/store.js';
import { Facts, Page, Select, Table, Time, pending, useGet, useLoad } from '../lib/ui.js';
import { GROUPS, MEASURES, SERIES, columnsOf, daysUpTo, dollars, groupsOf, nanos, readUsage, roundUp, sumOf, table } from '../lib/usage.js';

const TIMES = { 7: '7 days', 30: '30 days', 90: '90 days', 365: '12 months' };
/** Rows of the table that are shown at first. */
const SHOWN = 50;

const day = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short', timeZone: 'UTC' });
const dayWithYear = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeZone: 'UTC' });
/** Returns a day in words, with its year if that is not this one. */
function dayWords(date) {
  const time = new Date(`${date}T00:00:00Z`);
  if (Number.isNaN(time.getTime())) return date;
  return (time.getUTCFullYear() === new Date().getUTCFullYear() ? day : dayWithYear).format(time);
}

/** Returns the selection in the address, completed with defaults. */
function selection({ query }) {
  const one = (name, values, other) => (Object.hasOwn(values, query.get(name) ?? '') ? query.get(name) : other);
  return {
    by: one('by', GROUPS, 'model'), measure: one('measure', MEASURES, 'cost'), time: one('time', TIMES, '30'),
    agentId: query.get('agent') ?? '', isMine: query.get('mine') === 'true',
  };
}

/** Goes to the view with another selection. */
function select(name, value) {
  const { query } = route.value;
  const next = new URLSearchParams(query);
  if (value) next.set(name, value);
  else next.delete(name);
  location.hash = `${href('usage')}?${next}`;
}

/** Returns true if the user may see the usage of others too: an admin, or the owner of the agent. */
function seesOthers(agentId) {
  const { userId, roles } = session.value;
  return roles.includes('admin') || agents.value.some(({ id, ownerId }) => id === agentId && ownerId === userId);
}

export function Usage() {
  const chosen = selection(route.value);
  const { by, measure, time, agentId, isMine } = chosen;
  const days = daysUpTo(Number(time), new Date());
  const userId = isMine ? session.value.userId : undefined;
  const load = useLoad((signal) => readUsage({ by, days, agentId, userId }, signal), JSON.stringify([by, days[0], days.at(-1), agentId, userId]));
  const { data } = load;
  const isUnknown = agentId && !agents.value.some(({ id }) => id === agentId);
  const all = [['', 'All agents'], ...(isUnknown ? [[agentId, agentId]] : []), ...agentNames()];
  return html`<${Page} name="usage" title="Usage" kind="usage" actions=${html`<div class="row">
      <${Select} label="Agent" value=${agentId} all=${all} onSelect=${(id) => select('agent', id)} />
      <${Select} label="Time" value=${time} all=${Object.entries(TIMES)} onSelect=${(days) => select('time', days)} />
      <button type="button" class="button" onClick=${load.reload}>Reload</button>
      <button type="button" class="button" disabled=${!data || data.rows.length === 0} onClick=${() => exportCsv(data)}>Export CSV</button>
    </div>`}>
    <div class="row between lead">
      <p class="muted">${scopeWords(chosen)} Days are in UTC.</p>
      ${seesOthers(agentId) && html`<label class="check"><input type="checkbox" checked=${isMine} onChange=${(event) => select('mine', event.target.checked && 'true')} /><span>Mine alone</span></label>`}
    </div>
    ${pending(load)}
    ${data && html`<${Report} data=${data} measure=${measure} />`}
    <${Limits} />
  <//>`;
}

function scopeWords({ agentId, isMine }) {
  if (isMine || !seesOthers(agentId)) return 'Your own calls of models, in runs and jobs.';
  return agentId ? 'All calls of models by this agent, for all users and visitors.' : 'All calls of models in the company.';
}

function Report({ data, measure }) {
  const { rows, by, days, isWhole, unpriced } = data;
  const sums = useMemo(() => sumOf(rows), [rows]);
  const groups = useMemo(() => groupsOf(rows, by, measure), [rows, by, measure]);
  const columns = useMemo(() => columnsOf(rows, { days, by, measure, groups }), [rows, days, by, measure, groups]);
  return html`
    <${Figures} sums=${sums} />
    <div class="row between view-bar">
      <${Choice} label="Shown" name="measure" choices=${MEASURES} chosen=${measure} />
      <${Choice} label="By" name="by" choices=${GROUPS} chosen=${by} />
    </div>
    ${!isWhole && html`<p class="note">There are more rows than the page reads. Choose a shorter time or an agent.</p>`}
    <${Chart} columns=${columns} names=${by === 'day' ? [] : groups.map((group) => nameOf(group, by))} measure=${measure} />
    <${Unpriced} models=${unpriced} calls=${sums.unpricedCalls} />
    ${sums.estimatedCost > 0n && html`<p class="muted small">Of the cost, ${dollars(sums.estimatedCost)} is estimated: the provider has not reported all counts.</p>`}
    ${rows.length === 0 ? html`<p class="muted">No model was called in this time.</p>` : html`<${Groups} groups=${groups} by=${by} sums=${sums} />`}`;
}

function Choice({ label, name, choices, chosen }) {
  return html`<div class="row" role="group" aria-label=${label}>${Object.entries(choices).map(([id, { name: words }]) => html`<button type="button" key=${id} class="button small"
    aria-pressed=${id === chosen} onClick=${() => select(name, id)}>${words}</button>`)}</div>`;
}

function Figures({ sums }) {
  const { cost, inputTokens, cachedInputTokens, outputTokens, runs, calls, toolCalls } = sums;
  const facts = [
    ['Cost', dollars(cost)], ['Input tokens', number(inputTokens)], ['Cached', inputTokens > 0 ? `${Math.round((cachedInputTokens / inputTokens) * 100)} %` : '–'],
    ['Output tokens', number(outputTokens)], ['Runs', number(runs)], ['Model calls', number(calls)], ['Tool calls', number(toolCalls)],
  ];
  return html`<${Facts} facts=${facts} kind="figures" />`;
}

/** Stacked columns over time. The table has the same figures for those who do not see it. */
function Chart({ columns, names, measure }) {
  const [hovered, setHovered] = useState(undefined);
  const { name, words, axis } = MEASURES[measure];
  const top = roundUp(Math.max(...columns.map(({ total }) => total)));
  const total = columns.reduce((sum, column) => sum + column.total, 0);
  const shown = columns[hovered];
  const series = columns[0].values.map((_, place) => ({
    name: place < SERIES ? names[place] : `${names.length - SERIES} others`,
    value: shown ? shown.values[place] : columns.reduce((sum, { values }) => sum + values[place], 0),
  }));
  const columnWords = ({ from, to }) => (from === to ? dayWords(from) : `${dayWords(from)} – ${dayWords(to)}`);
  const height = (value) => ({ height: `${(value / top) * 100}%` });
  const [first, last] = [columns[0], columns.at(-1)];
  return html`<figure class="chart">
    <figcaption class="row between"><span>${name} ${first.from === first.to && last.from === last.to ? 'by day' : 'by week'}</span>
      <span class="meta">${shown ? `${columnWords(shown)}: ${words(shown.total)}` : `in all: ${words(total)}`}</span></figcaption>
    <div class="plot" role="img" aria-label=${`${name} from ${dayWords(first.from)} to ${dayWords(last.to)}, in all ${words(total)}`} onPointerLeave=${() => setHovered(undefined)}>
      ${total === 0 && html`<p class="muted">No ${name.toLowerCase()} in this time.</p>`}
      ${total > 0 && [1, 0.5].map((part) => html`<span key=${part} class="rule" style=${{ bottom: `${part * 100}%` }}><span>${axis(top * part)}</span></span>`)}
      <div class=${`columns ${columns.length > 40 ? 'many' : ''}`}>${columns.map((column, place) => html`<div key=${column.from} class=${`column-bar ${place === hovered ? 'hovered' : ''}`} onPointerEnter=${() => setHovered(place)}>
        ${column.values.map((value, of) => value > 0 && html`<span key=${of} class=${`series-${of}`} style=${height(value)}></span>`)}</div>`)}</div>
    </div>
    <p class="row between meta" aria-hidden="true"><span>${dayWords(first.from)}</span><span>${dayWords(last.to)}</span></p>
    ${names.length > 0 && html`<dl class="legend">${series.map((one, place) => html`<div key=${place}><dt><span class=${`swatch series-${place}`} aria-hidden="true"></span><span class="legend-name">${one.name}</span></dt><dd>${words(one.value)}</dd></div>`)}</dl>`}
  </figure>`;
}

/** The models whose calls are not in the cost. */
function Unpriced({ models, calls }) {
  if (calls === 0) return null;
  return html`<div class="note note-warn"><p>${counted(calls, 'call')} ${calls === 1 ? 'has' : 'have'} no known price and ${calls === 1 ? 'is' : 'are'} not in the cost:</p>
    <ul class="chips plain">${models.map(({ provider, model, unpricedCalls }) => html`<li key=${`${provider} ${model}`} class="chip"><code>${provider}/${model}</code> ${number(unpricedCalls)}</li>`)}</ul>
    <p class="small">The operator adds prices by <code>MODEL_CATALOG</code>.</p></div>`;
}

/** Returns the name of a group as people know it. */
function nameOf({ name }, by) {
  if (by === 'day') return dayWords(name);
  return by === 'agent' ? agentName(name) : name;
}

const NUMBERS = ['Runs', 'Calls', 'Input', 'Cached', 'Output', 'Tools', 'Cost'];

function Groups({ groups, by, sums }) {
  const [shown, more] = useFirst(groups, SHOWN);
  const cells = ({ runs, calls, inputTokens, cachedInputTokens, outputTokens, toolCalls, cost, unpricedCalls }) => html`
    <td class="num">${number(runs)}</td><td class="num">${number(calls)}</td><td class="num">${number(inputTokens)}</td><td class="num">${number(cachedInputTokens)}</td>
    <td class="num">${number(outputTokens)}</td><td class="num">${number(toolCalls)}</td>
    <td class="num">${dollars(cost)}${unpricedCalls > 0 && html`<span class="muted" title="not all calls have a price"> +</span>`}</td>`;
  return html`<${Table} label="usage by group" kind="sums" head=${[GROUPS[by].name, ...NUMBERS]} numbers=${NUMBERS}>
      <tbody>${shown.map((group, place) => html`<tr key=${group.key}>
        <th scope="row"><span class="group-name">${by !== 'day' && html`<span class=${`swatch series-${Math.min(place, SERIES)}`} aria-hidden="true"></span>`}<span>${nameOf(group, by)}${group.kind && html` <span class="muted">${group.kind}</span>`}</span></span></th>
        ${cells(group.sums)}</tr>`)}</tbody>
      <tfoot><tr><th scope="row">In all</th>${cells(sums)}</tr></tfoot>
  <//>
  ${more}`;
}

const UNITS = { runs: 'Runs', changes: 'Changes', tokens: 'Tokens', cost: 'Cost', toolCalls: 'Tool calls', concurrentRuns: 'Runs at once' };

/** The limits of the user, and for an admin those of the company, and how far they are used. */
function Limits() {
  const load = useGet('GET /api/limits');
  const limits = load.data?.limits;
  return html`<section class="limits" aria-labelledby="limits-title"><h2 id="limits-title">Your limits</h2>
    ${pending(load)}
    ${limits?.length === 0 && html`<p class="muted">The operator has set none.</p>`}
    ${limits?.map(({ policy, kind, unit, window, resetsAt, ...limit }) => {
      const name = `${kind === 'company' ? 'Company: ' : policy === 'budget' ? 'Budget: ' : ''}${UNITS[unit] ?? unit}${window ? ` a ${window}` : ''}`;
      const [amount, used, reserved] = [limit.amount, limit.used, limit.reserved].map(Number);
      const shown = (value) => unit === 'cost' ? dollars(nanos(value)) : number(value);
      return html`<${Meter} key=${name} name=${name} max=${amount || 1} value=${used + reserved}>${shown(limit.used)} of ${shown(limit.amount)} used${reserved > 0 ? `, ${shown(limit.reserved)} reserved` : ''}${used > 0 && resetsAt && html`, free again <${Time} at=${resetsAt} />`}<//>`;
    })}
  </section>`;
}

function exportCsv({ rows, by, days }) {
  const { names, rows: cells } = table(rows, by);
  save(`usage-${by}-${days[0]}-${days.at(-1)}.csv`, 'text/csv', csv(names, cells));
}

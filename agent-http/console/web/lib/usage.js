/** Usage of models: the rows of the server summed up by group and by column of a chart, and what a run has cost. */

import { keptRun } from './run.js';
import { call, listAll } from './store.js';
import { useLoad } from './ui.js';

/** Rows of a request, and maximum number of requests for a report. */
const PAGE = 1000;
const MAX_PAGES = 10;
/** Groups with a colour of their own; the others share one. */
export const SERIES = 5;
/** Maximum number of days whose columns are days; those of longer times are weeks. */
const MAX_DAILY = 92;
const DAY_MS = 86_400_000;

/** Units of the money's texts in a dollar. They are integers, so that sums are exact. */
const NANOS = 1_000_000_000n;

/** Groups by name: the dimensions of the request, and the members of a row that are its name and its kind. */
export const GROUPS = {
  model: { name: 'Model', groupBy: 'provider,model', members: ['model', 'provider'] },
  agent: { name: 'Agent', groupBy: 'agent', members: ['agentId'] },
  caller: { name: 'Caller', groupBy: 'caller', members: ['caller'] },
  user: { name: 'User', groupBy: 'user', members: ['userId'] },
  day: { name: 'Day', groupBy: '', members: ['day'] },
};

const COUNTS = ['runs', 'calls', 'inputTokens', 'cachedInputTokens', 'cacheWriteTokens', 'outputTokens', 'reasoningTokens', 'toolCalls', 'unpricedCalls'];
const AMOUNTS = ['cost', 'estimatedCost'];
/** Members of a row that are not sums, in the order of the file. */
const MEMBERS = ['day', 'agentId', 'userId', 'provider', 'model', 'caller'];

const compact = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });
const cents = new Intl.NumberFormat('en', { style: 'currency', currency: 'USD' });
const short = new Intl.NumberFormat('en', { style: 'currency', currency: 'USD', maximumSignificantDigits: 3 });
const fine = new Intl.NumberFormat('en', { style: 'currency', currency: 'USD', minimumFractionDigits: 4 });

/** Sums that can be drawn, with the words of a value and of a round one. */
export const MEASURES = {
  cost: { name: 'Cost', of: ({ cost }) => Number(cost) / Number(NANOS), words: (value) => dollars(BigInt(Math.round(value * Number(NANOS)))), axis: (value) => (value < 0.01 ? short : cents).format(value) },
  tokens: { name: 'Tokens', of: ({ inputTokens, outputTokens }) => inputTokens + outputTokens, words: compact.format, axis: compact.format },
  runs: { name: 'Runs', of: ({ runs }) => runs, words: compact.format, axis: compact.format },
};

/** Returns an amount in words, with fractions of a cent below ten dollars. @param {bigint} nanos */
export function dollars(nanos) {
  if (nanos > 0n && nanos < NANOS / 10_000n) return '< $0.0001';
  const value = Number(nanos) / Number(NANOS);
  return nanos === 0n || value >= 10 ? cents.format(value) : fine.format(value);
}

/** Returns the text of an amount, such as `0.012345678`, in nano-dollars; 0 if it is none. */
export const nanos = (text) => (/^\d+\.\d{9}$/.test(text) ? BigInt(text.replace('.', '')) : 0n);

/** Pause between two looks for the cost of a run of this page, which is booked soon after its end, in milliseconds; and how many there are. */
const BOOKING_MS = 500;
const MAX_LOOKS = 4;

/** Reads what a run that has ended has cost, in words; `undefined` if that is not known, as without a price. */
export async function readCost(runId, signal) {
  for (let look = keptRun(runId) ? 0 : MAX_LOOKS - 1; look < MAX_LOOKS && !signal.aborted; look += 1) {
    try {
      const { calls, unpricedCalls, cost } = (await call('GET /api/usage/runs/{runId}', { params: { runId }, signal })).data;
      return unpricedCalls === calls ? undefined : `${dollars(nanos(cost))}${unpricedCalls > 0 ? ' +' : ''}`;
    } catch (error) {
      if (error.status !== 404) return undefined;
    }
    await new Promise((resolve) => setTimeout(resolve, BOOKING_MS));
  }
  return undefined;
}

/** The cost of a run behind its other figures. */
export function Cost({ runId }) {
  const { data } = useLoad((signal) => readCost(runId, signal), runId);
  return data && ` · ${data}`;
}

const empty = () => Object.fromEntries([...COUNTS.map((name) => [name, 0]), ...AMOUNTS.map((name) => [name, 0n])]);

function add(sums, row) {
  for (const name of COUNTS) sums[name] += Number(row[name]) || 0;
  for (const name of AMOUNTS) sums[name] += nanos(row[name]);
}

/** Returns the sums of rows. */
export function sumOf(rows) {
  const sums = empty();
  for (const row of rows) add(sums, row);
  return sums;
}

/** Returns the days of UTC up to the one of `now`, as dates. @param {number} count @param {Date} now */
export const daysUpTo = (count, now) => Array.from({ length: count }, (_, place) => new Date(now.getTime() - (count - 1 - place) * DAY_MS).toISOString().slice(0, 10));

/** Reads the rows of a query, and tells if they are all. @returns {Promise<{rows: object[], isWhole: boolean}>} */
async function readRows(query, signal) {
  const rows = await listAll('GET /api/usage', 'rows', { query: { ...query, limit: PAGE }, pages: MAX_PAGES, signal });
  return { rows, isWhole: rows.length < PAGE * MAX_PAGES };
}

/**
 * Reads what the calls have used: by day and group, and the models without a price.
 *
 * @param {{by: string, days: string[], agentId?: string, userId?: string}} query
 */
export async function readUsage({ by, days, agentId, userId }, signal) {
  const filter = { from: days[0], to: days.at(-1), agentId: agentId || undefined, userId: userId || undefined };
  const found = await readRows({ ...filter, groupBy: ['day', GROUPS[by].groupBy].filter(Boolean).join() }, signal);
  const isPriced = found.rows.every(({ unpricedCalls }) => !unpricedCalls);
  const models = isPriced ? [] : (await readRows({ ...filter, groupBy: 'provider,model' }, signal)).rows;
  return { ...found, by, days, unpriced: models.filter(({ unpricedCalls }) => unpricedCalls > 0) };
}

/** Returns the name and the kind of a row's group. Tool calls belong to no model. */
function groupOf(row, by) {
  const [name, kind] = GROUPS[by].members.map((member) => String(row[member] ?? ''));
  if (by === 'model' && !name && !kind) return { name: 'tools', kind: '' };
  return { name: name || '–', kind: kind ?? '' };
}

/** Returns the groups of rows with their sums, the greatest of a measure first; days with the latest first. */
export function groupsOf(rows, by, measure) {
  const groups = new Map();
  for (const row of rows) {
    const { name, kind } = groupOf(row, by);
    const key = `${kind} ${name}`;
    if (!groups.has(key)) groups.set(key, { key, name, kind, sums: empty() });
    add(groups.get(key).sums, row);
  }
  const { of } = MEASURES[measure];
  const size = ({ sums }) => [of(sums), sums.inputTokens + sums.outputTokens, sums.calls];
  const compare = (one, other) => size(other).reduce((found, value, place) => found || value - size(one)[place], 0) || one.name.localeCompare(other.name);
  return [...groups.values()].sort(by === 'day' ? (one, other) => other.name.localeCompare(one.name) : compare);
}

/**
 * Returns the columns of a chart: `{from, to, values, total}`, with a value for each series. The last series has all groups
 * after the first ones.
 *
 * @param {object[]} rows
 * @param {{days: string[], by: string, measure: string, groups: {key: string}[]}} options
 */
export function columnsOf(rows, { days, by, measure, groups }) {
  const length = days.length > MAX_DAILY ? 7 : 1;
  const count = by === 'day' ? 1 : Math.min(groups.length, SERIES + 1);
  const places = new Map(by === 'day' ? [] : groups.map(({ key }, place) => [key, Math.min(place, SERIES)]));
  const columns = [];
  // The last week is whole, so that it can be compared.
  for (let end = days.length; end > 0; end -= length) {
    const start = Math.max(0, end - length);
    columns.unshift({ from: days[start], to: days[end - 1], values: new Array(count).fill(0), total: 0 });
  }
  const columnOf = new Map();
  for (const column of columns) for (const day of days) if (day >= column.from && day <= column.to) columnOf.set(day, column);
  for (const row of rows) {
    const column = columnOf.get(row.day);
    if (!column) continue;
    const { name, kind } = groupOf(row, by);
    const sums = empty();
    add(sums, row);
    const value = MEASURES[measure].of(sums);
    column.values[places.get(`${kind} ${name}`) ?? 0] += value;
    column.total += value;
  }
  return columns;
}

/** Returns the least round number from a value on: 1, 2, 2.5 or 5 times a power of ten. @param {number} value */
export function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 2.5, 5, 10].find((step) => step * power >= value * (1 - 1e-9));
}

/** Returns the names and the cells of a file with the rows as the server gave them. */
export function table(rows, by) {
  const members = MEMBERS.filter((member) => member === 'day' || GROUPS[by].members.includes(member));
  const names = [...members, ...COUNTS, ...AMOUNTS];
  return { names, rows: rows.map((row) => names.map((name) => row[name])) };
}

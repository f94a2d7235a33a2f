/** Numbers, times and sizes as people read them. */

/** Returns a random UUID; unlike `crypto.randomUUID`, on pages without HTTPS too. */
export function newId() {
  const digit = (of) => (of ^ (crypto.getRandomValues(new Uint8Array(1))[0] & (15 >> (of / 4)))).toString(16);
  return '10000000-1000-4000-8000-100000000000'.replace(/[018]/g, digit);
}

const numbers = new Intl.NumberFormat('en');

/** @param {number | undefined} value */
export const number = (value) => (value === undefined ? '–' : numbers.format(value));

/** Returns a number of things in words, such as `1 message`. @param {number} count @param {string} noun */
export const counted = (count, noun) => `${number(count)} ${noun}${count === 1 ? '' : 's'}`;

/** Returns whole seconds in words of the two largest units. @param {number} seconds */
export function remaining(seconds) {
  const [days, hours, minutes] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  if (days > 0) return hours > 0 ? `${days} d ${hours} h` : `${days} d`;
  if (hours > 0) return `${hours} h ${minutes} min`;
  return minutes > 0 ? `${minutes} min ${seconds % 60} s` : `${seconds} s`;
}

/** @param {number | undefined} ms */
export function duration(ms) {
  if (ms === undefined) return '–';
  // The limits are where rounding leads to the next form.
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(ms < 9995 ? 2 : 1)} s`;
  return remaining(Math.round(ms / 1000));
}

/** @param {number} bytes */
export function size(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  return bytes < 1024 * 1024 ? `${(bytes / 1024).toFixed(1)} KB` : `${(bytes / 1024 / 1024).toFixed(1)} MB`;
}

/** The user's time zone. */
export const here = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** Returns a name of a file that has a name of ours in it. @param {string} name */
export const fileName = (name) => name.replace(/[^\w.-]/g, '_');

const clock = new Intl.DateTimeFormat(undefined, { hour: 'numeric', minute: '2-digit' });
const seconds = new Intl.DateTimeFormat(undefined, { hour: 'numeric', minute: '2-digit', second: '2-digit' });
/** Day and month in the user's zone. */
export const day = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short' });
const dayWithYear = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium' });
const full = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' });

/** Returns a time in the user's zone: the clock's today, else the day, with its year if that is not this one. @param {string} iso */
export function moment(iso) {
  const [time, now] = [new Date(iso), new Date()];
  if (Number.isNaN(time.getTime())) return '–';
  if (time.toDateString() === now.toDateString()) return clock.format(time);
  return (time.getFullYear() === now.getFullYear() ? day : dayWithYear).format(time);
}

/** Returns the clock's time with seconds, after the day if it is not today. @param {string} iso */
export function timeOfDay(iso) {
  const time = new Date(iso);
  if (Number.isNaN(time.getTime())) return '–';
  return time.toDateString() === new Date().toDateString() ? seconds.format(time) : `${day.format(time)}, ${seconds.format(time)}`;
}

/** Returns day and time in the user's zone. @param {string} iso */
export function dateTime(iso) {
  const time = new Date(iso);
  return Number.isNaN(time.getTime()) ? '–' : full.format(time);
}

/** Keeps the digits of a whole number that a number would round. A reviver of JSON: `source` is the number as it is written. */
export const exact = (_, value, { source } = {}) =>
  (/^-?\d{16,}$/.test(source) && !Number.isSafeInteger(value) ? BigInt(source) : value);

// JSON has such a number as its digits again. Older browsers have no `rawJSON`, and round.
BigInt.prototype.toJSON = function toJSON() {
  return JSON.rawJSON?.(this) ?? Number(this);
};

/** Parses JSON; whole numbers beyond 2^53 are BigInts. @param {string} text */
export const parseJson = (text) => JSON.parse(text, /\d{16}/.test(text) && exact);

/** Returns JSON text indented; other text as it is. @param {string} text */
export function pretty(text) {
  try {
    return JSON.stringify(parseJson(text), null, 2);
  } catch {
    return text;
  }
}

/** Returns the text of a message's content without its other parts. */
export function textOf(content) {
  if (typeof content === 'string') return content;
  return (content ?? []).flatMap(({ type, text }) => (type === 'text' ? [text] : [])).join('\n');
}

/** Returns the text of a message's content: a string, or parts. */
export function contentText(content) {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  return content.map((part) => (part.type === 'text' ? part.text : `[${part.type}]`)).join('\n');
}

/** The fields of a schedule, for a new job and for one that is rescheduled. */

import { html, useState } from '../vendor/ui.js';
import { NextRuns } from '../lib/next.js';
import { cronWords } from '../lib/schedule.js';

const KINDS = { once: 'Once', interval: 'At an interval', cron: 'By a cron expression' };
const UNITS = { minutes: 60_000, hours: 3_600_000, days: 86_400_000 };
const here = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** Returns a time as an input of the browser's zone has it. @param {Date} time */
const localTime = (time) => new Date(time.getTime() - time.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);

/** The values of the form at first: a job's own schedule. */
function initial({ schedule: { cron, everyMs, timezone } = {}, executeAt } = {}) {
  const unit = Object.keys(UNITS).findLast((name) => everyMs >= UNITS[name] && everyMs % UNITS[name] === 0) ?? 'minutes';
  const due = new Date(executeAt ?? Date.now() + UNITS.hours);
  return {
    kind: cron ? 'cron' : everyMs ? 'interval' : 'once',
    at: localTime(Number.isNaN(due.getTime()) ? new Date() : due),
    count: String(everyMs ? everyMs / UNITS[unit] : 1), unit, cron: cron ?? '0 9 * * *', timezone: timezone ?? here,
  };
}

/** Returns the schedule that the form's values make; `undefined` while they make none. */
function scheduleOf({ kind, at, count, unit, cron, timezone }) {
  if (kind === 'once') {
    const time = new Date(at);
    return Number.isNaN(time.getTime()) ? undefined : { executeAt: time.toISOString() };
  }
  if (kind === 'interval') return Number(count) > 0 ? { everyMs: Math.round(Number(count) * UNITS[unit]) } : undefined;
  return cron.trim() ? { cron: cron.trim(), timezone: timezone.trim() || undefined } : undefined;
}

/** The state of the fields, with the schedule that they make. @param {object} [job] */
export function useSchedule(job) {
  const [values, setValues] = useState(() => initial(job));
  const input = (name) => ({ id: `schedule-${name}`, value: values[name], onInput: (event) => setValues({ ...values, [name]: event.target.value }) });
  return { values, input, schedule: scheduleOf(values) };
}

/** The fields, with the runs to which they lead. */
export function ScheduleFields({ state: { values, input, schedule } }) {
  return html`<div class="field"><label for="schedule-kind">Runs</label>
      <select ...${input('kind')}>${Object.entries(KINDS).map(([kind, words]) => html`<option key=${kind} value=${kind}>${words}</option>`)}</select></div>
    <${Fields} values=${values} input=${input} />
    <${NextRuns} schedule=${schedule} />`;
}

function Fields({ values: { kind, cron }, input }) {
  if (kind === 'once') return html`<div class="field"><label for="schedule-at">Time, in ${here}</label><input ...${input('at')} type="datetime-local" required /></div>`;
  if (kind === 'interval') {
    return html`<div class="field-row">
      <div class="field"><label for="schedule-count">Every</label><input ...${input('count')} type="number" min="0" step="any" required /></div>
      <div class="field"><label for="schedule-unit">Unit</label><select ...${input('unit')}>${Object.keys(UNITS).map((unit) => html`<option key=${unit} value=${unit}>${unit}</option>`)}</select></div>
    </div>`;
  }
  const words = cronWords(cron);
  return html`<div class="field-row">
    <div class="field"><label for="schedule-cron">Cron expression</label><input ...${input('cron')} class="code-input" required spellcheck="false" autocomplete="off" />
      ${words !== cron && html`<p class="meta">${words}</p>`}</div>
    <div class="field"><label for="schedule-timezone">Time zone</label><input ...${input('timezone')} spellcheck="false" autocomplete="off" /></div>
  </div>`;
}

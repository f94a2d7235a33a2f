/** A form that replaces a job's schedule. */

import { html, useState } from '../vendor/ui.js';
import { cronWords } from '../lib/schedule.js';
import { call } from '../lib/store.js';
import { ErrorNote } from '../lib/ui.js';

const KINDS = { once: 'Once', interval: 'At an interval', cron: 'By a cron expression' };
const UNITS = { minutes: 60_000, hours: 3_600_000, days: 86_400_000 };
const here = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** Returns a time as an input of the browser's zone has it. @param {Date} time */
const localTime = (time) => new Date(time.getTime() - time.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);

/** What the form has at first: the job's own schedule. */
function initial({ schedule: { cron, everyMs, timezone } = {}, executeAt }) {
  const unit = Object.keys(UNITS).findLast((name) => everyMs >= UNITS[name] && everyMs % UNITS[name] === 0) ?? 'minutes';
  const due = new Date(executeAt);
  return {
    kind: cron ? 'cron' : everyMs ? 'interval' : 'once',
    at: localTime(Number.isNaN(due.getTime()) ? new Date() : due),
    count: String(everyMs ? everyMs / UNITS[unit] : 1), unit, cron: cron ?? '0 9 * * *', timezone: timezone ?? here,
  };
}

/** Returns the schedule that the form's values make. */
function scheduleOf({ kind, at, count, unit, cron, timezone }) {
  if (kind === 'once') return { executeAt: new Date(at).toISOString() };
  if (kind === 'interval') return { everyMs: Math.round(Number(count) * UNITS[unit]) };
  return { cron: cron.trim(), timezone: timezone.trim() || undefined };
}

export function Reschedule({ job, onChange }) {
  const [values, setValues] = useState(() => initial(job));
  const [error, setError] = useState(undefined);
  const [isSaving, setSaving] = useState(false);
  const input = (name) => ({ id: `schedule-${name}`, value: values[name], onInput: (event) => setValues({ ...values, [name]: event.target.value }) });
  const submit = async (event) => {
    event.preventDefault();
    setSaving(true);
    setError(undefined);
    try {
      await call('POST /api/pulse/jobs/{id}/reschedule', { params: { id: job.jobId }, body: scheduleOf(values) });
      onChange();
    } catch (error) {
      setError(error);
    }
    setSaving(false);
  };
  return html`<details class="fold block"><summary>Reschedule</summary>
    <form class="fold-body" onSubmit=${submit}>
      <div class="field"><label for="schedule-kind">Runs</label>
        <select ...${input('kind')}>${Object.entries(KINDS).map(([kind, words]) => html`<option key=${kind} value=${kind}>${words}</option>`)}</select></div>
      <${Fields} values=${values} input=${input} />
      ${error && html`<${ErrorNote} error=${error} />`}
      <button class="button primary" disabled=${isSaving}>Replace the schedule</button>
    </form>
  </details>`;
}

function Fields({ values: { kind, cron }, input }) {
  if (kind === 'once') return html`<div class="field"><label for="schedule-at">Time, in ${here}</label><input ...${input('at')} type="datetime-local" required /></div>`;
  if (kind === 'interval') {
    return html`<div class="field-row">
      <div class="field"><label for="schedule-count">Every</label><input ...${input('count')} type="number" min="1" step="any" required /></div>
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

/** A form that replaces a job's schedule. */

import { html, useState } from '../vendor/ui.js';
import { call } from '../lib/store.js';
import { ErrorNote } from '../lib/ui.js';
import { ScheduleFields, useSchedule } from './schedule-fields.js';

export function Reschedule({ job, onChange }) {
  const state = useSchedule(job);
  const [error, setError] = useState(undefined);
  const [isSaving, setSaving] = useState(false);
  const [isOpen, setOpen] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    setSaving(true);
    setError(undefined);
    try {
      await call('POST /api/pulse/jobs/{id}/reschedule', { params: { id: job.jobId }, body: state.schedule });
      onChange();
    } catch (error) {
      setError(error);
    }
    setSaving(false);
  };
  return html`<details class="fold block" onToggle=${(event) => setOpen(event.target.open)}><summary>Reschedule</summary>
    ${isOpen && html`<form class="fold-body" onSubmit=${submit}>
      <${ScheduleFields} state=${state} />
      ${error && html`<${ErrorNote} error=${error} />`}
      <button class="button primary" disabled=${isSaving}>Replace the schedule</button>
    </form>`}
  </details>`;
}

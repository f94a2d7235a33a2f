/** What can be done with jobs. */

import { call } from './store.js';

export const STATES = ['', 'open', 'scheduled', 'running', 'retryable', 'paused', 'completed', 'discarded', 'cancelled'];
export const FINAL = new Set(['completed', 'discarded', 'cancelled']);

/** Returns true if a job can be cancelled and rescheduled. The periodic job of an assignment changes with its assignment only. */
export const isChangeable = ({ state, payload = {}, schedule = {} }) => !FINAL.has(state) && !(payload.assignmentId && !schedule.executeAt);

/** Actions, and the jobs for which each is. A periodic job that goes on is among the discarded ones for its dead letters. */
export const ACTIONS = [
  { id: 'pause', name: 'Pause', route: 'POST /api/pulse/jobs/{id}/pause', fits: ({ state }) => !FINAL.has(state) && state !== 'paused',
    ask: (jobs) => `Pause ${jobs}?`,
    text: 'No run begins until you resume. A run in progress goes on.' },
  { id: 'resume', name: 'Resume', route: 'POST /api/pulse/jobs/{id}/resume', fits: ({ state }) => state === 'paused',
    ask: (jobs) => `Resume ${jobs}?`,
    text: 'Runs begin by the schedule again.' },
  { id: 'redrive', name: 'Run again', route: 'POST /api/pulse/jobs/{id}/redrive', fits: ({ state }, filter) => state === 'discarded' || filter === 'discarded',
    ask: (jobs) => `Run ${jobs} again?`,
    text: 'The run that was discarded last is made again, now.' },
  { id: 'cancel', name: 'Cancel', route: 'DELETE /api/pulse/jobs/{id}', fits: isChangeable, isFinal: true,
    ask: (jobs) => `Cancel ${jobs}?`, text: 'No further run begins. A run in progress goes on.' },
];

/** What a job does, in a few words. */
export const jobName = ({ payload = {} }) => payload.toolId ?? payload.message ?? payload.kind ?? 'job';

/** The first text among the arguments of a job's tool, which tells jobs of one tool apart. */
export function jobHint({ payload = {} }) {
  const text = Object.values(payload.arguments ?? {}).find((value) => typeof value === 'string' && value !== '');
  return text && (text.length > 60 ? `${text.slice(0, 60)}…` : text);
}

/** Does something with a job. @param {{route: string}} action @param {{jobId: string}} job */
export const actOn = ({ route }, { jobId }) =>
  call(route, { params: { id: jobId }, body: route.startsWith('POST') ? {} : undefined });

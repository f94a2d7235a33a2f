/** Decisions about tool calls that wait: those of the open thread, and the list of all that the user may see. */

import { signal, useEffect } from '../vendor/ui.js';
import { openCalls, refreshWaiting, resume, waitingRun } from './chat.js';
import { agents, call, session } from './store.js';

/** Interval at which what waits is read again, while the page is visible. */
const POLL_MS = 5000;

/** Decisions of the open thread that are not sent yet, by approval: `{verdict, arguments?, reason?}`. */
export const decisions = signal(new Map());
/** Arguments that the user has changed, by approval: they are shown again if the server refuses them. */
export const edits = new Map();
/** Open approvals that the user may see, the latest first; `undefined` until they are read. */
export const openApprovals = signal(undefined);

/** Calls a function now and then, while the page is visible. Its errors are the function's own to show. */
export function usePoll(run, key) {
  useEffect(() => {
    let timer;
    let isGone = false;
    let isAsking = false;
    const next = async () => {
      clearTimeout(timer);
      // A page that is shown again meanwhile has one timer still.
      if (document.hidden || isAsking) return;
      isAsking = true;
      await run().catch(() => {});
      isAsking = false;
      if (!isGone) timer = setTimeout(next, POLL_MS);
    };
    const onVisible = () => !document.hidden && next();
    document.addEventListener('visibilitychange', onVisible);
    next();
    return () => {
      isGone = true;
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', onVisible);
    };
  }, [key]);
}

/** Returns true if the user is one of those who decide. The server lists a user's own calls alone, and the company's. */
export function mayDecide({ by, agentId }) {
  if (by !== 'owner') return true;
  return agents.value.find(({ id }) => id === agentId)?.ownerId === session.value?.userId;
}

/** Returns the people who decide, in words. */
export const deciders = ({ by }) => ({ user: 'the user of the chat', visitor: 'the user of the chat', owner: 'the agent’s owner', company: 'the company' })[by] ?? by;

/** Returns the number of calls that wait for the user. */
export const openCount = () => (openApprovals.value ?? []).filter(mayDecide).length;

/** Reads the open approvals. */
export async function loadOpen() {
  const { data } = await call('GET /api/approvals', { query: { state: 'open' } });
  // Unchanged approvals are not drawn again.
  if (JSON.stringify(data.approvals) !== JSON.stringify(openApprovals.value)) openApprovals.value = data.approvals;
}

/** Sends a decision by the routes, and returns the approval as it is then. */
export async function decide(id, { verdict, arguments: edited, reason }) {
  const body = { decision: verdict, arguments: edited, reason: reason || undefined };
  return (await call('POST /api/approvals/{id}', { params: { id }, body })).data;
}

/** Takes a decision of the open thread, or takes it back. A call that waits alone is decided at once. */
export async function choose(id, decision) {
  const chosen = new Map(decisions.value);
  if (decision?.arguments) edits.set(id, decision.arguments);
  if (decision) chosen.set(id, decision);
  else chosen.delete(id);
  decisions.value = chosen;
  if (decision && openCalls(waitingRun.value).length === 1) await sendDecisions();
}

/** Decides all calls of the thread that have no decision yet. */
export function chooseAll(verdict) {
  const chosen = new Map(decisions.value);
  for (const { approval } of openCalls(waitingRun.value)) {
    if (mayDecide(approval) && !chosen.has(approval.id)) chosen.set(approval.id, { verdict });
  }
  decisions.value = chosen;
}

/** Returns the open calls that the user decides, and how many of them have a decision. */
export function progress() {
  const own = openCalls(waitingRun.value).filter(({ approval }) => mayDecide(approval));
  return { count: own.length, decided: own.filter(({ approval }) => decisions.value.has(approval.id)).length };
}

/**
 * Sends the decisions: with the chat, whose answer streams then; by the routes where other people decide about the rest.
 */
export async function sendDecisions() {
  const open = openCalls(waitingRun.value).map(({ approval }) => approval);
  const own = open.filter((approval) => decisions.value.has(approval.id));
  if (own.length === open.length) {
    await resume(own.map(({ id }) => ({ interruptId: id, status: 'resolved', payload: payload(decisions.value.get(id)) })));
  } else {
    for (const { id } of own) await decide(id, decisions.value.get(id));
    await refreshWaiting();
  }
  // Those of another thread stay.
  decisions.value = new Map([...decisions.value].filter(([id]) => !own.some((sent) => sent.id === id)));
  await loadOpen().catch(() => {});
}

const payload = ({ verdict, arguments: edited, reason }) => ({
  approved: verdict === 'approve', editedArgs: edited, reason: reason || undefined,
});

/** A tool call that waits for a person: the question, the arguments, and the decision. */

import { html, useEffect, useLayoutEffect, useRef, useState } from '../vendor/ui.js';
import { decisionError, draft, expiries, heldMessage, isOpen, live, openCalls, refreshWaiting, waitingRun, withdrawAndSend } from '../lib/chat.js';
import { choose, chooseAll, deciders, decisions, edits, mayDecide, progress, sendDecisions, usePoll } from '../lib/approvals.js';
import { ArgumentsEditor, useArguments } from '../lib/arguments.js';
import { contentText, dateTime, remaining } from '../lib/format.js';
import { Code, Dot, ErrorNote, Time } from '../lib/ui.js';

/** Maximum length of a reason, in characters. */
const MAX_REASON = 2000;

/** The time until a decision is too late, as it runs down. `onEnd` is called at the end. */
function Countdown({ expiresAt, onEnd }) {
  const [left, setLeft] = useState(Date.parse(expiresAt) - Date.now());
  useEffect(() => {
    const tick = () => {
      const now = Date.parse(expiresAt) - Date.now();
      setLeft(now);
      if (now <= 0) {
        clearInterval(timer);
        onEnd?.();
      }
    };
    const timer = setInterval(tick, 1000);
    return () => clearInterval(timer);
  }, [expiresAt]);
  return html`<time class="countdown" datetime=${expiresAt} title=${dateTime(expiresAt)}>${left > 0 ? `expires in ${remaining(Math.ceil(left / 1000))}` : 'expired'}</time>`;
}

/** The arguments as they are. */
function Arguments({ args }) {
  if (args === null) return html`<p class="muted">The arguments were erased.</p>`;
  return html`<${Code} value=${args} label="arguments" role="group" wrap />`;
}

/**
 * The card. `onDecide` gets `{verdict, arguments?, reason?}`; without it, other people decide. `chosen` is a decision that
 * is not sent yet, and taken back with `undefined`; `edited` are arguments that were changed before.
 */
export function ApprovalCard({ approval, schema, title, chosen, edited, isBusy, error, onDecide, children }) {
  // The card is drawn again when its time has run out.
  expiries.value;
  const { tool, message, expiresAt } = approval;
  const root = useRef(null);
  const last = useRef(chosen);
  // The button that was pressed is gone with the focus.
  useLayoutEffect(() => {
    if (last.current !== chosen && document.activeElement === document.body) root.current.querySelector('.approval-choice button, .primary')?.focus();
    last.current = chosen;
  }, [chosen]);
  return html`<div class="approval" role="group" ref=${root} aria-label=${`Approval of ${tool}`}>
    <header class="approval-head">
      <${Dot} state="waiting" /><span class="tool-name">${tool}</span>
      <span class="meta">${title}<${Countdown} expiresAt=${expiresAt} onEnd=${() => (expiries.value += 1)} /></span>
    </header>
    ${message && html`<p class="approval-question">${message}</p>`}
    ${chosen
      ? html`<${Chosen} approval=${approval} chosen=${chosen} onBack=${() => onDecide(undefined)} />`
      : html`<${Question} approval=${approval} schema=${schema} edited=${edited} isBusy=${isBusy} onDecide=${isOpen(approval) ? onDecide : undefined} />`}
    <${ErrorNote} error=${error} />
    ${children}
  </div>`;
}

function Chosen({ approval, chosen, onBack }) {
  const words = chosen.verdict === 'approve' ? (chosen.arguments ? 'Approved, with changed arguments' : 'Approved') : 'Denied';
  return html`<${Arguments} args=${chosen.arguments ?? approval.arguments} />
    <div class="row approval-choice"><span class=${chosen.verdict === 'approve' ? 'good' : 'bad'}>${words}</span>
      ${chosen.reason && html`<span class="muted">${chosen.reason}</span>`}
      <button type="button" class="button quiet small" onClick=${onBack}>Change</button></div>`;
}

function Question({ approval, schema, edited, isBusy, onDecide }) {
  const { arguments: args, editable } = approval;
  const [mode, setMode] = useState(edited ? 'edit' : 'read');
  const [reason, setReason] = useState('');
  const editor = useArguments(edited ?? args ?? {}, schema);
  const buttons = useRef(null);
  const last = useRef(mode);
  // What a button opens has the focus, and gives it back to the button.
  useLayoutEffect(() => {
    const row = buttons.current;
    if (last.current !== mode) (mode === 'read' ? row?.children[last.current === 'deny' ? 1 : 2] : row?.parentNode.querySelector('input, select, textarea'))?.focus();
    last.current = mode;
  }, [mode]);
  const approve = () => {
    if (mode !== 'edit') return onDecide({ verdict: 'approve' });
    const found = editor.read();
    if (!found) return undefined;
    const isChanged = JSON.stringify(found.value) !== JSON.stringify(args);
    return onDecide({ verdict: 'approve', arguments: isChanged ? found.value : undefined });
  };
  const id = `approval-${approval.id}`;
  return html`
    ${mode === 'edit' ? html`<${ArgumentsEditor} id=${id} state=${editor} />` : html`<${Arguments} args=${args} />`}
    ${mode === 'deny' && html`<div class="field"><label for=${`${id}-reason`}>Reason <span class="meta">for the model, optional</span></label>
      <textarea id=${`${id}-reason`} rows="2" maxlength=${MAX_REASON} value=${reason} onInput=${(event) => setReason(event.target.value)}></textarea></div>`}
    ${!onDecide && html`<p class="muted small">${isOpen(approval) ? `Waits for ${deciders(approval)}.` : 'No decision came in time. The call is not made.'}</p>`}
    ${onDecide && html`<div class="row" ref=${buttons}>
      ${mode !== 'deny' && html`<button type="button" class="button primary" disabled=${isBusy} onClick=${approve}>${mode === 'edit' ? 'Approve changed' : 'Approve'}</button>`}
      ${mode !== 'edit' && html`<button type="button" class=${mode === 'deny' ? 'button danger' : 'button'} disabled=${isBusy}
        onClick=${() => (mode === 'deny' ? onDecide({ verdict: 'deny', reason: reason.trim() }) : setMode('deny'))}>${mode === 'deny' ? 'Deny the call' : 'Deny'}</button>`}
      ${mode === 'read' && editable && args !== null && html`<button type="button" class="button quiet" onClick=${() => setMode('edit')}>Edit arguments</button>`}
      ${mode !== 'read' && html`<button type="button" class="button quiet" onClick=${() => setMode('read')}>Back</button>`}
    </div>`}`;
}

/** The decision about a call, and its author. */
export function Decision({ approval }) {
  const { state, decidedBy, decidedAt, via, editedArguments, reason, executed } = approval;
  const words = { approved: 'Approved', denied: 'Denied', cancelled: 'Withdrawn', expired: 'Nobody decided in time' }[state];
  if (!words) return null;
  const who = decidedBy ? ` by ${decidedBy}` : '';
  const where = { approvals: ', outside of the chat', chat: ', in the chat' }[via] ?? '';
  return html`<div class="decision">
    <p class="small"><span class=${state === 'approved' ? 'good' : 'bad'}>${words}</span>${who}${where}${decidedAt && html` · <${Time} at=${decidedAt} />`}${state === 'approved' && executed === 'begun' ? ' · it is not known whether the call was made' : ''}</p>
    ${reason && html`<p class="small muted">“${reason}”</p>`}
    ${editedArguments && html`<p class="label">Changed arguments</p><${Code} value=${editedArguments} label="changed arguments" role="group" wrap />`}
  </div>`;
}

/** What stands below the conversation while several calls of its thread wait. */
export function Waiting() {
  const run = waitingRun.value;
  usePoll(refreshWaiting, run?.id);
  const [error, setError] = useState(undefined);
  const isIdle = !live.value || live.value.isOver;
  const refusal = error ?? decisionError.value;
  const { count, decided } = progress();
  const button = useRef(null);
  // "Approve all" is disabled once it was pressed.
  useLayoutEffect(() => document.activeElement.disabled && button.current?.focus(), [decided]);
  if (!isIdle) return null;
  const send = () => {
    setError(undefined);
    sendDecisions().catch(async (failure) => {
      setError(failure);
      await refreshWaiting().catch(() => {});
    });
  };
  return html`
    ${refusal && html`<div class="note" role="alert"><p>${run ? 'The decision was not taken.' : 'This was decided elsewhere meanwhile.'} <span class="muted">${refusal.message}</span></p></div>`}
    ${run && count > 1 && html`<div class="approval-bar row between" role="group" aria-label="Decisions">
      <span>${openCalls(run).length} calls wait. <span class="muted">${decided} of ${count} decided.</span></span>
      <span class="row"><button type="button" class="button small" disabled=${decided === count} onClick=${() => chooseAll('approve')}>Approve all</button>
        <button type="button" class="button small" disabled=${decided === count} onClick=${() => chooseAll('deny')}>Deny all</button>
        <button type="button" class="button primary small" ref=${button} disabled=${decided < count} onClick=${send}>Send decisions</button></span>
    </div>`}`;
}

/** A message that was written while calls wait. */
export function Held() {
  if (!heldMessage.value) return null;
  const text = contentText(heldMessage.value.content);
  const action = text ? 'Withdraw and send' : 'Withdraw and go on';
  const keep = () => {
    heldMessage.value = undefined;
    draft.value ||= text ?? '';
  };
  return html`<div class="note held" role="alert">
    <p>Tool calls wait for a decision. ${text ? 'The message was not sent.' : ''}</p>
    ${text && html`<p class="held-text muted">${text}</p>`}
    <div class="row"><button type="button" class="button small" onClick=${withdrawAndSend}>${action}</button>
      <button type="button" class="button quiet small" onClick=${keep}>Keep waiting</button></div>
  </div>`;
}

/** The card of a call in the chat: the question while it is open. */
export function ChatApproval({ approval }) {
  const [error, setError] = useState(undefined);
  const found = openCalls(waitingRun.value).find((one) => one.approval.id === approval.id);
  const onDecide = (decision) => {
    setError(undefined);
    choose(approval.id, decision).catch(setError);
  };
  return html`<${ApprovalCard} approval=${approval} schema=${found?.schema} chosen=${decisions.value.get(approval.id)}
    edited=${edits.get(approval.id)} error=${error} onDecide=${mayDecide(approval) ? onDecide : undefined} />`;
}

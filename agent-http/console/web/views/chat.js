/** The chat: the messages of a thread, the run in progress, and the composer. */

import { html, useEffect, useLayoutEffect, useRef, useState } from '../vendor/ui.js';
import {
  agentId, answerParts, chatLink, decisionError, dismiss, draft, expiries, heldMessage, inspect, inspected, isKept, isLoading, isOpen, items, live, loadError, regenerate, reopen, retry, select, send,
  runs, stop, thread, unanswered, waitingRun,
} from '../lib/chat.js';
import { decisions } from '../lib/approvals.js';
import { attach, attachments, isIncomplete, withFiles, withText } from '../lib/attachments.js';
import { contentText, duration, number, pretty, textOf } from '../lib/format.js';
import { keptRun, total } from '../lib/run.js';
import { agentNames, agents, go, has, href } from '../lib/store.js';
import { Code, Copy, Dot, ErrorNote, Fold, Markdown, Page, Select, lazy, useTitle } from '../lib/ui.js';

/** A component of the approvals, which most chats never need. */
const ofApprovals = (name) => lazy(() => import('./approval-card.js'), name);
const ChatApproval = ofApprovals('ChatApproval');
const Decision = ofApprovals('Decision');
const Held = ofApprovals('Held');
const Waiting = ofApprovals('Waiting');

const Cost = lazy(() => import('../lib/usage.js'), 'Cost');
/** Number of the last messages and answers under which the cost is shown, since each is a request. */
const MAX_COSTS = 20;

const Feedback = lazy(() => import('./feedback.js'), 'Feedback');

const Attachments = lazy(() => import('./attachments.js'), 'Attachments');
const MessageFiles = lazy(() => import('./attachments.js'), 'MessageFiles');

export function Chat() {
  const agent = agents.value.find(({ id }) => id === agentId.value);
  return agent && html`<section class="chat" aria-label="Chat">
    <${Header} agent=${agent} />
    <${Conversation} agent=${agent} />
    <${Composer} agent=${agent} />
  </section>`;
}

/** Returns a page without a chat: the company has no agent, or none of the id in the address. */
export const noAgent = () => html`<${Page} name="agent" title=${agents.value.length ? 'No such agent' : 'No agent yet'} kind="empty">
    <p class="muted">An agent is a role: instructions, tools, documents and a backend.</p>
    <a class="button primary" href="#/agents/new">Create an agent</a>
  <//>`;

function Header({ agent }) {
  useTitle(`${thread.value?.title ?? 'New chat'} · ${agent.name || agent.id}`);
  return html`<header class="chat-head">
    <div class="agent-pick"><${Select} label="Agent" value=${agent.id} all=${agentNames()} onSelect=${(id) => go('chat', id)} /></div>
    <h1 class="thread-title"><span class=${thread.value ? '' : 'visually-hidden'}>${thread.value?.title ?? 'New chat'}</span></h1>
    <a class="button quiet" href=${href('chat', agent.id)}>New chat</a>
  </header>`;
}

/** Keeps the end in view while it grows, unless the reader has scrolled up. */
function useFollow(root) {
  const follows = useRef(true);
  useEffect(() => {
    const node = root.current;
    const look = () => (follows.current = node.scrollHeight - node.scrollTop - node.clientHeight < 80);
    node.addEventListener('scroll', look, { passive: true });
    return () => node.removeEventListener('scroll', look);
  }, []);
  return () => {
    if (follows.current && root.current) root.current.scrollTop = root.current.scrollHeight;
  };
}

function Conversation({ agent }) {
  const root = useRef(null);
  const follow = useFollow(root);
  const rows = [...items.value];
  if (live.value) {
    const { run, content } = live.value;
    // Decisions continue the answer that requested them.
    const item = content || rows.at(-1)?.kind !== 'answer' ? { key: `turn-${run.runId}`, content } : rows.pop();
    rows.push({ ...item, turn: live.value });
  }
  useLayoutEffect(follow, [rows.length, live.value]);
  return html`<div class="conversation" ref=${root} role="log" aria-live="off" aria-label="Messages" tabindex="0">
    <div class="column">
      <${ErrorNote} error=${loadError.value} reload=${reopen} isLoading=${isLoading.value} />
      ${rows.map((item) => html`<${item.kind === 'user' ? UserMessage : Answer} key=${item.key} item=${item} agent=${agent} follow=${follow} />`)}
      ${rows.length === 0 && (isLoading.value ? html`<p class="muted">Loading…</p>` : !loadError.value && html`<${Welcome} agent=${agent} />`)}
      ${unanswered.value && html`<${ErrorNote} error=${unanswered.value.error}>
        <button type="button" class="button small" onClick=${() => regenerate(unanswered.value.node)}>Try again</button>
      <//>`}
      ${(waitingRun.value || decisionError.value) && html`<${Waiting} />`}
    </div>
  </div>`;
}

function Welcome({ agent }) {
  return html`<div class="welcome">
    <span class="avatar large" aria-hidden="true">${initial(agent.name || agent.id)}</span>
    <h2>${agent.name || agent.id}</h2>
    <p class="muted">Ask something. What the model reads, which tools it may use and what it costs is on the debug tabs.</p>
  </div>`;
}

export const initial = (name) => [...name.trim()][0]?.toUpperCase() ?? '?';

function Siblings({ item }) {
  const { siblings } = item;
  const own = item.node ?? item.nodes[0];
  if (siblings.length < 2) return null;
  const place = siblings.findIndex(({ id }) => id === own.id);
  const go = (by) => () => select(siblings[place + by]);
  return html`<span class="siblings" role="group" aria-label="Alternatives">
    <button type="button" class="icon" aria-label="Previous alternative" disabled=${place === 0 || live.value} onClick=${go(-1)}>‹</button>
    <span>${place + 1}/${siblings.length}</span>
    <button type="button" class="icon" aria-label="Next alternative" disabled=${place === siblings.length - 1 || live.value} onClick=${go(1)}>›</button>
  </span>`;
}

function UserMessage({ item }) {
  const { content } = item.node.message;
  const [edited, setEdited] = useState(undefined);
  const [rawButton, raw] = useRaw(item.node);
  if (edited !== undefined) return html`<${Editor} node=${item.node} onClose=${() => setEdited(undefined)} />`;
  return html`<article class="message user" aria-label="You">
    <${UserContent} content=${content} />
    <div class="message-tools">
      <${Siblings} item=${item} />
      ${has('threads') && html`<button type="button" class="button quiet small" disabled=${Boolean(live.value)} onClick=${() => setEdited(true)}>Edit</button>`}
      <${Copy} text=${contentText(content)} />
      ${rawButton}
    </div>
    ${raw}
  </article>`;
}

/** What is stored of a message, or of the messages of an answer: the button that shows it, and its JSON. */
function useRaw(value) {
  const [isOpen, setOpen] = useState(false);
  return [
    html`<button type="button" class="button quiet small" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>Raw</button>`,
    isOpen && html`<${Code} value=${value} label="stored message" role="group" wrap />`,
  ];
}

/** The content of a user's message: a text, or parts. */
function UserContent({ content }) {
  const files = Array.isArray(content) ? content.filter(({ type }) => type !== 'text') : [];
  const text = textOf(content);
  return html`${files.length > 0 && html`<${MessageFiles} files=${files} />`}${text && html`<div class="bubble">${text}</div>`}`;
}

/** Returns true if a key sends a text. */
const sends = ({ key, shiftKey }) => key === 'Enter' && !shiftKey;

/** An editor of a sent message. The edited one becomes a sibling, with the same files; nothing is lost. */
function Editor({ node, onClose }) {
  const { content } = node.message;
  const [value, setValue] = useState(() => textOf(content));
  const area = useRef(null);
  // A run that has started meanwhile must end first: its text is not lost.
  const isRunning = Boolean(live.value) && !live.value.isOver;
  useEffect(() => {
    area.current.focus();
    return () => document.getElementById('composer')?.focus();
  }, []);
  const submit = () => {
    const edited = withText(content, value.trim());
    if (edited.length === 0 || isRunning) return;
    dismiss();
    onClose();
    send(edited, node.parentId ?? null);
  };
  const onKeyDown = (event) => {
    if (event.key === 'Escape') onClose();
    if (sends(event)) {
      event.preventDefault();
      submit();
    }
  };
  return html`<form class="editor" onSubmit=${(event) => { event.preventDefault(); submit(); }}>
    <textarea ref=${area} aria-label="Edit the message" value=${value} rows=${Math.min(12, value.split('\n').length + 1)}
      onInput=${(event) => setValue(event.target.value)} onKeyDown=${onKeyDown}></textarea>
    <div class="row end">
      <button type="button" class="button" onClick=${onClose}>Cancel</button>
      <button type="submit" class="button primary" disabled=${isRunning}>Send</button>
    </div>
  </form>`;
}

/**
 * An answer: its stored messages, if there are some, and the run in progress, the `turn`, with the `content` that was sent. Parts stay in the
 * document when they are stored, and with them a selection, the focus and what is unfolded.
 */
function Answer({ item, agent, follow }) {
  const { nodes, turn, content } = item;
  // The signal's value is read so that the component is drawn with each frame of the run.
  const version = turn?.run.version.value;
  useLayoutEffect(() => turn && follow(), [version]);
  const parts = [...nodes ? answerParts(item) : [], ...turn?.run.parts ?? []];
  return html`${content && html`<article class="message user" aria-label="You"><${UserContent} content=${content} /></article>`}<article class="message answer" aria-label=${agent.name || agent.id} aria-busy=${turn?.run.status === 'running'}>
    ${parts.map((part) => html`<${Part} key=${part.id} part=${part} version=${version} />`)}
    <${turn ? LiveFoot : StoredFoot} turn=${turn} item=${item} parts=${parts} />
  </article>`;
}

function StoredFoot({ item, parts }) {
  const last = item.nodes.at(-1);
  // Decisions continue an answer in another run.
  const { runId } = last;
  const run = keptRun(runId);
  const stored = runs.value.get(runId);
  const error = run?.error ?? stored?.error;
  const text = () => parts.filter(({ kind }) => kind === 'text').map(({ text }) => text).join('\n\n');
  const parent = item.nodes[0].parentId;
  const [rawButton, raw] = useRaw(item.nodes);
  const rated = isKept() && item.nodes.findLast(({ message, status }) => message.role === 'assistant' && message.content && status !== 'deleted');
  return html`${last.status === 'incomplete' && !error && html`<p class="muted small">This answer was not completed.</p>`}
    <${ErrorNote} error=${error} />
    <div class="message-tools">
      <${Siblings} item=${item} />
      ${parent && html`<button type="button" class="button quiet small" disabled=${Boolean(live.value)} onClick=${() => regenerate({ id: parent })}>Regenerate</button>`}
      <${Copy} text=${text} />
      ${rawButton}
      ${(run || has('runEvents')) && html`<button type="button" class="button quiet small" aria-pressed=${inspected.value?.runId === runId} onClick=${() => inspect(runId)}>Inspect</button>`}
      ${rated && html`<${Feedback} key=${rated.id} node=${rated} />`}
      ${(run ?? stored) && html`<${RunMeta} run=${run ?? storedFigures(stored)} costOf=${has('usage') && items.value.slice(-MAX_COSTS).includes(item) && runId} />`}
    </div>
    ${raw}`;
}

/** The figures of a run that another page has started. */
function storedFigures({ state, finishReason, usage, startedAt, endedAt }) {
  const status = state === 'completed' ? 'finished' : state;
  const took = endedAt ? new Date(endedAt) - new Date(startedAt) : undefined;
  return { status, finishReason, usage, endedAt: took, outputTokens: total(usage, 'outputTokens') };
}

/** Finish reason, tokens and time of a run, and the cost of the run `costOf`. */
function RunMeta({ run, costOf }) {
  const { usage, finishReason, status: state } = run;
  const cached = total(usage, 'cachedInputTokens');
  const words = [
    state === 'finished' ? finishReason : state,
    usage && `${number(total(usage, 'inputTokens'))} in${cached ? ` (${number(cached)} cached)` : ''}`,
    usage && `${number(run.outputTokens)} out`,
    run.endedAt && duration(run.endedAt),
  ].filter(Boolean);
  return html`<span class="meta">${words.join(' · ')}${costOf && html`<${Cost} runId=${costOf} />`}</span>`;
}

function LiveFoot({ turn: { run, isOver } }) {
  const leave = () => {
    dismiss();
    document.getElementById('composer').focus();
  };
  const isRunning = run.status === 'running';
  return html`${isRunning && !run.parts.some((part) => part.isOpen) && html`<p class="waiting" aria-hidden="true"><i></i><i></i><i></i></p>`}
    ${run.error && html`<${ErrorNote} error=${run.error}>
      ${isOver && html`<div class="row">${run.acceptedAt === undefined && html`<button type="button" class="button small" onClick=${retry}>Try again</button>`}
        <button type="button" class="button small" onClick=${leave}>Dismiss</button></div>`}
    <//>`}
    ${!isRunning && html`<div class="message-tools"><${RunMeta} run=${run} /></div>`}`;
}

/** A part of an answer. That of a run in progress is the same object for all of its time, so that it has a `version` too. */
function Part({ part, version }) {
  switch (part.kind) {
    case 'text':
      return html`<${Markdown} text=${part.text} isOpen=${part.isOpen} />`;
    case 'reasoning':
      return html`<${Reasoning} part=${part} />`;
    case 'tool':
      return html`<${ToolCard} part=${part} version=${version} />`;
    default:
      return html`<p class="muted">This message was deleted.</p>`;
  }
}

function Reasoning({ part }) {
  const took = part.endedAt - part.startedAt;
  const time = took >= 100 ? ` for ${duration(took)}` : '';
  return html`<${Fold} name=${part.id} kind="reasoning" summary=${part.isOpen ? 'Thinking…' : `Thought${time}`}><div class="quiet-text">${part.text}</div><//>`;
}

/** State of a call, in a word. */
function toolState({ result, isError, isOpen, approval }) {
  if (approval && ['denied', 'cancelled', 'expired'].includes(approval.state)) return approval.state === 'cancelled' ? 'withdrawn' : approval.state;
  if (result !== undefined) return { true: 'failed', false: 'done' }[isError] ?? 'result';
  if (approval?.state === 'open') return openState(approval);
  return isOpen ? 'running' : 'no result';
}

/** State of a call whose decision is on its way, or came from nobody. */
function openState({ id }) {
  if (!live.value) return 'expired';
  if (!live.value.fields?.resume) return 'withdrawn';
  return decisions.value.get(id)?.verdict === 'deny' ? 'denied' : 'running';
}

function ToolCard({ part }) {
  const { approval } = part;
  // Whether a decision is awaited depends on the time.
  expiries.value;
  const isDone = part.result !== undefined;
  if (approval && isOpen(approval) && !isDone && !(live.value && !live.value.isOver)) return html`<${ChatApproval} key=${approval.id} approval=${approval} />`;
  const state = toolState(part);
  const time = part.endedAt !== undefined ? duration(part.endedAt - (part.calledAt ?? part.startedAt)) : '';
  const { progress } = part;
  const summary = html`<${Dot} state=${state === 'no result' ? 'none' : state} /><span class="tool-name">${part.name}</span><span class="meta">${state}${time && ` · ${time}`}</span>`;
  return html`<${Fold} name=${part.id} kind=${`tool ${part.isError ? 'failed' : ''}`} summary=${summary}>
    <p class="label">Arguments</p>
    <${Code} text=${pretty(part.text || '{}')} label="arguments" role="group" />
    ${approval && html`<${Decision} approval=${approval} />`}
    ${progress && !isDone && html`<progress aria-label="progress" value=${progress.progress} max=${progress.total}></progress>`}
    ${isDone && html`<p class="label">${part.isError ? 'Error' : 'Result'}</p><${Code} text=${pretty(part.result)} label="result" role="group" wrap />
      <a class="button quiet small" href=${chatLink({ tab: 'tools', call: part.id })}>Try again in Tools</a>`}
  <//>`;
}

/** The button that adds files to the next message. */
function AttachButton() {
  const input = useRef(null);
  const choose = ({ target }) => {
    attach(target.files);
    target.value = '';
  };
  return html`<button type="button" class="icon attach" aria-label="Attach files" title="Attach files" onClick=${() => input.current.click()}>+</button>
    <input type="file" hidden multiple ref=${input} aria-label="Files to attach" onChange=${choose} />`;
}

function Composer({ agent }) {
  const area = useRef(null);
  const isRunning = live.value && !live.value.isOver;
  useEffect(() => area.current.focus({ preventScroll: true }), [agent.id]);
  useEffect(() => {
    // The button that started the run may be gone.
    if (isRunning && document.activeElement === document.body) area.current.focus({ preventScroll: true });
  }, [isRunning]);
  useLayoutEffect(() => {
    area.current.style.height = 'auto';
    area.current.style.height = `${Math.min(area.current.scrollHeight, 220)}px`;
  }, [draft.value]);
  const isSendable = (draft.value.trim() !== '' || attachments.value.length > 0) && !isIncomplete();
  const submit = () => {
    if (!isSendable || isRunning) return;
    const content = withFiles(draft.value.trim());
    dismiss();
    draft.value = '';
    attachments.value = [];
    send(content);
  };
  // Files that are pasted or dropped; a text is left to the browser.
  const take = (event) => {
    const files = (event.clipboardData ?? event.dataTransfer).files;
    if (!has('files') || files.length === 0) return;
    event.preventDefault();
    attach(files);
  };
  const onKeyDown = (event) => {
    if (event.key === 'Escape' && isRunning) stop();
    if (sends(event)) {
      event.preventDefault();
      submit();
    }
  };
  return html`<form class="composer" onSubmit=${(event) => { event.preventDefault(); submit(); }} onPaste=${take} onDrop=${take}>
    ${heldMessage.value && html`<${Held} />`}
    ${attachments.value.length > 0 && html`<${Attachments} />`}
    <div class="composer-box">
      ${has('files') && html`<${AttachButton} />`}
      <textarea id="composer" ref=${area} rows="1" aria-label="Message" placeholder=${`Message ${agent.name || agent.id}`}
        value=${draft.value} onInput=${(event) => (draft.value = event.target.value)} onKeyDown=${onKeyDown}></textarea>
      ${isRunning
        ? html`<button type="button" class="button primary" onClick=${stop}>Stop</button>`
        : html`<button type="submit" class="button primary" disabled=${!isSendable}>Send</button>`}
    </div>
    <p class="hint"><kbd>Enter</kbd> sends · <kbd>Shift</kbd>+<kbd>Enter</kbd> new line · <kbd>Esc</kbd> stops</p>
  </form>`;
}

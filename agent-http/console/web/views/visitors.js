/** What the owner of an agent sees of its visitors: their threads, and the feedback on its answers. */

import { html, useState } from '../vendor/ui.js';
import { contentText, counted, dateTime, moment, number, pretty } from '../lib/format.js';
import { Menu, usePages } from '../lib/lists.js';
import { call, go, href, route } from '../lib/store.js';
import { Code, Dot, ErrorNote, Fold, Markdown, Time, pending, useConfirm, useGet } from '../lib/ui.js';
import { exportLinks } from './threads.js';

/** @param {{id: string, part?: string}} props `part` is `feedback`, or a thread's id. */
export function Visitors({ id, part }) {
  if (part && part !== 'feedback') return html`<${VisitorThread} key=${part} agent=${id} id=${part} owner=${route.value.query.get('owner') ?? ''} />`;
  const link = (to, name) => html`<a class="button small" href=${href('agents', id, 'visitors', to)} aria-current=${part === to ? 'page' : undefined}>${name}</a>`;
  return html`
    <nav class="row view-bar" aria-label="Visitors">${link(undefined, 'Threads')}${link('feedback', 'Feedback')}</nav>
    ${part === 'feedback' ? html`<${FeedbackList} id=${id} />` : html`<${ThreadList} id=${id} />`}`;
}

const More = ({ list }) => list.cursor && html`<p class="table-foot"><button type="button" class="button small" disabled=${list.isLoading} onClick=${list.loadMore}>Load older ones</button></p>`;

function ThreadList({ id }) {
  const list = usePages('GET /api/agents/{id}/threads', 'threads', { params: { id }, query: { limit: 50 } });
  return html`
    <p class="muted">Conversations of visitors of this agent’s widgets. They have no names here; a thread belongs to a browser.</p>
    ${pending({ ...list, data: list.items })}
    ${list.items?.length === 0 && html`<p class="muted">No visitor has written yet, or their threads have ended.</p>`}
    <ul class="rows">${(list.items ?? []).map((thread) => html`<li key=${`${thread.owner} ${thread.id}`} class="item">
      <div class="item-main">
        <a class="item-title" href=${`${href('agents', id, 'visitors', thread.id)}?${new URLSearchParams({ owner: thread.owner })}`}>${thread.title || 'Untitled'}</a>
        <p class="meta"><${Dot} state=${thread.status} /> ${thread.status} · ${counted(thread.messageCount, 'message')} · <${Time} at=${thread.lastActivityAt} words=${moment} /></p>
      </div></li>`)}</ul>
    <${More} list=${list} />`;
}

function VisitorThread({ agent, id, owner }) {
  const found = useGet('GET /api/threads/{id}', { params: { id }, query: { owner, limit: 200 } });
  const [error, setError] = useState(undefined);
  const remove = () => call('DELETE /api/threads/{id}', { params: { id }, query: { owner } }).then(() => route.value.parts[2] === id && go('agents', agent, 'visitors'), setError);
  const [question, ask] = useConfirm(() => ({
    title: 'Delete this thread?', text: 'It is deleted with its messages and runs, for the visitor too. This cannot be undone.', action: 'Delete', onConfirm: remove,
  }));
  const thread = found.data;
  return html`
    <p class="back"><a href=${href('agents', agent, 'visitors')}>Visitors</a></p>
    ${pending(found)}<${ErrorNote} error=${error} />
    ${thread && html`<div class="row between thread-head"><h2>${thread.title || 'Untitled'}</h2>
      <${Menu} label="More for this thread" items=${[...exportLinks(id, owner), { name: 'Delete', isDanger: true, run: ask }]} /></div>
      <p class="meta">begun ${dateTime(thread.createdAt)} · ${counted(thread.messageCount, 'message')}${thread.nextCursor ? ' · the first of them' : ''}</p>
      <div class="read-only">${(thread.nodes ?? []).map((node) => html`<${Message} key=${node.id} node=${node} />`)}</div>`}
    ${question}`;
}

const Call = ({ name, children }) => html`<${Fold} kind="tool" summary=${html`<span class="tool-name">${name}</span>`}>${children}<//>`;

function Message({ node: { message, status, feedback, createdAt } }) {
  if (status === 'deleted') return html`<p class="muted">This message was deleted.</p>`;
  const text = contentText(message.content);
  if (message.role === 'user') return html`<article class="message user" aria-label="Visitor"><div class="bubble" title=${createdAt ? dateTime(createdAt) : undefined}>${text}</div></article>`;
  if (message.role === 'tool') return html`<${Call} name="Result"><${Code} text=${pretty(text)} label="result" wrap /><//>`;
  return html`<article class="message answer" aria-label="Answer">
    ${text && html`<${Markdown} text=${text} />`}
    ${(message.toolCalls ?? []).map((call) => html`<${Call} key=${call.id} name=${call.function.name}><${Code} text=${pretty(call.function.arguments)} label="arguments" /><//>`)}
    ${feedback && html`<p class="meta">rated <strong>${feedback.rating}</strong>${feedback.comment ? `: ${feedback.comment}` : ''}</p>`}
  </article>`;
}

function FeedbackList({ id }) {
  const list = usePages('GET /api/agents/{id}/feedback', 'feedback', { params: { id }, query: { limit: 50 } });
  const items = list.items ?? [];
  const up = items.filter(({ rating }) => rating === 'up').length;
  return html`
    <p class="muted">Ratings of this agent’s answers, without the people and their threads. The rated words are there where they were shared.</p>
    ${pending({ ...list, data: list.items })}
    ${list.items?.length === 0 && html`<p class="muted">No answer was rated yet.</p>`}
    ${items.length > 0 && html`<p class="figure"><strong>${Math.round((up / items.length) * 100)} %</strong> <span class="muted">good, of ${number(items.length)} ${list.cursor ? 'latest ' : ''}ratings</span></p>`}
    <ul class="rows">${items.map((one) => html`<li key=${one.id} class="item"><div class="item-main">
      <p class="item-title"><${Dot} state=${one.rating === 'up' ? 'done' : 'failed'} /> ${one.rating === 'up' ? 'Good' : 'Bad'}${(one.tags ?? []).map((tag) => html` <span key=${tag} class="chip">${tag}</span>`)}</p>
      ${one.comment && html`<p>${one.comment}</p>`}
      ${one.message && html`<${Fold} summary="Rated answer"><${Markdown} text=${contentText(one.message.content)} /><//>`}
      <p class="meta"><${Time} at=${one.createdAt} /></p>
    </div></li>`)}</ul>
    <${More} list=${list} />`;
}

/** The tokens of an agent: those that pages and programs have, a new one, and the widget's snippet. */

import { html, useEffect, useRef, useState } from '../vendor/ui.js';
import { Choice, Count, Text, Words, fieldErrors, isWithin, setAt } from '../lib/fields.js';
import { moment } from '../lib/format.js';
import { keepFocus, useOpenedForm } from '../lib/lists.js';
import { address, agentName, call, listAll } from '../lib/store.js';
import { Code, Copy, Dot, ErrorNote, Time, pending, useAction, useConfirm, useLoad } from '../lib/ui.js';

const DAY_MS = 86_400_000;
const LIFETIMES = [[undefined, 'until it is revoked'], [DAY_MS, 'one day'], [30 * DAY_MS, '30 days'], [90 * DAY_MS, '90 days'], [365 * DAY_MS, 'a year']];
const MEMBERS = ['kind', 'ttlMs', 'label', 'origins', 'caps', 'todoListId', 'tools'];
const KINDS = { widget: 'widget', mcp: 'MCP', api: 'API' };
const USES = {
  widget: 'the widget: visitors of pages chat with the agent', mcp: 'MCP: a program calls the agent’s tools for you',
  api: 'API: a client of OpenAI’s API chats with the agent for you',
};
const NEW = { kind: 'widget', caps: { runsPerMinute: 20 } };

export function Tokens({ id }) {
  const list = useLoad(() => listAll('GET /api/agents/{id}/tokens', 'tokens', { params: { id } }), id);
  // `null` after a token was shown.
  const [made, setMade] = useState(undefined);
  const onMade = (token) => {
    setMade(token);
    list.reload();
  };
  const wait = pending(list);
  if (wait) return wait;
  const tokens = [...list.data].reverse().sort((one, other) => isOver(one) - isOver(other));
  return html`
    <p class="muted">With a token, the visitors of a page chat with this agent, or a program calls its tools or chats for you. Only a hash of it is kept.</p>
    ${made ? html`<${Made} id=${id} token=${made} onClose=${() => setMade(null)} />` : html`<${NewToken} id=${id} isReplaced=${made === null} onMade=${onMade} />`}
    <h2 class="label">Tokens</h2>
    ${tokens.length === 0 && html`<p class="muted">The agent has no tokens.</p>`}
    <ul class="rows" ref=${keepFocus}>${tokens.map((token) => html`<${TokenRow} key=${token.id} agent=${id} token=${token} onRevoked=${list.reload} />`)}</ul>`;
}

const isExpired = ({ expiresAt }) => Boolean(expiresAt) && Date.parse(expiresAt) <= Date.now();
const isOver = (token) => Boolean(token.revokedAt) || isExpired(token);

function NewToken({ id, isReplaced, onMade }) {
  const [isOpen, setOpen] = useState(false);
  const root = useOpenedForm(isOpen, isReplaced);
  const [value, setValue] = useState(NEW);
  const [state, setState] = useState({});
  const form = {
    value, saved: {}, errors: state.errors ?? new Map(),
    set: (path, of) => {
      setValue((value) => setAt(value, path, of));
      setState(({ errors = new Map() }) => ({ errors: new Map([...errors].filter(([other]) => !isWithin(other, path))) }));
    },
  };
  const select = (kind) => () => {
    setValue(({ label, ttlMs }) => ({ ...(kind === 'widget' ? NEW : { kind }), label, ttlMs }));
    setState({});
  };
  const make = async (event) => {
    event.preventDefault();
    setState({ isBusy: true });
    try {
      onMade((await call('POST /api/agents/{id}/tokens', { params: { id }, body: value })).data);
    } catch (error) {
      setState({ error, errors: fieldErrors(error.status === 400 ? error.message : '', MEMBERS) });
    }
  };
  if (!isOpen) return html`<div ref=${root}><button type="button" class="button primary" onClick=${() => setOpen(true)}>New token</button></div>`;
  return html`<div ref=${root}><form class="token-form" aria-label="New token" onSubmit=${make}>
    <fieldset class="field choice"><legend>For</legend>
      ${Object.entries(USES).map(([kind, words]) => html`<label key=${kind} class="check"><input type="radio" name="kind" checked=${value.kind === kind} onChange=${select(kind)} /><span>${words}</span></label>`)}
    </fieldset>
    <div class="field-row">
      <${Text} form=${form} path="label" label="Label" hint="For this list." />
      <${Choice} form=${form} path="ttlMs" label="It is valid" options=${LIFETIMES} />
    </div>
    ${value.kind === 'widget' ? html`
      <${Words} key="origins" form=${form} path="origins" label="Origins" hint="Of the pages that may use it, such as https://shop.example, with commas between them. Without any, every page may." />
      <div class="field-row">
        <${Count} form=${form} path="caps.runsPerMinute" label="Messages a minute" hint="Of all visitors together." />
        <${Count} form=${form} path="caps.runsPerDay" label="Messages a day" hint="Absent: any number." />
      </div>` : value.kind === 'mcp' && html`
      <${Words} key="tools" form=${form} path="tools" label="Only these tools" hint="Names, with commas between them. Absent: all of the agent’s." />
      <${Text} form=${form} path="todoListId" label="Todo list" hint="For the tools of todos and plans." />`}
    <${ErrorNote} error=${state.error} />
    <div class="row"><button class="button primary" disabled=${state.isBusy}>Make the token</button>
      <button type="button" class="button quiet" onClick=${() => setOpen(false)}>Cancel</button></div>
  </form></div>`;
}

/** Text of an attribute, between double quotes. */
const attribute = (text) => text.replaceAll('&', '&amp;').replaceAll('"', '&quot;').replaceAll('<', '&lt;');

/** The script that adds the widget to a page. The application that serves the console serves it too. */
function snippet(id, token) {
  return `<script src="${attribute(address('widget.js'))}" async\n  data-token="${attribute(token)}"\n  data-title="${attribute(agentName(id))}"></script>`;
}

/** A token with its text, which is shown this once. */
function Made({ id, token, onClose }) {
  const isWidget = token.kind === 'widget';
  const isApi = token.kind === 'api';
  const root = useRef(null);
  // The button that had the focus is gone.
  useEffect(() => root.current.focus(), []);
  const code = isWidget ? snippet(id, token.token) : address(isApi ? 'v1' : 'api/agent/mcp');
  const secret = `It is a secret: who has it ${isApi ? 'chats with the agent' : 'calls the tools'} for you.`;
  return html`<section class="token-made" ref=${root} tabindex="-1" aria-labelledby="token-made">
    <h2 id="token-made">The token was created</h2>
    <p class="muted">It is not shown again: copy it now. ${isWidget ? 'Everybody who sees the page can read it.' : secret}</p>
    <div class="row between"><h3 class="label">Token</h3><${Copy} text=${token.token} label="Copy the token" /></div>
    <${Code} text=${token.token} label="token" wrap />
    <div class="row between"><h3 class="label">${isWidget ? 'For the page' : isApi ? 'Base address of the API; the model is the agent’s id' : 'Address of the tools'}</h3><${Copy} text=${code} label=${isWidget ? 'Copy the snippet' : 'Copy the address'} /></div>
    <${Code} text=${code} label=${isWidget ? 'snippet' : 'address'} wrap />
    ${isWidget && html`<p class="small muted">${token.origins.length > 0 ? `It works in pages of ${token.origins.join(', ')}.` : 'It works in every page: it has no origins.'}</p>`}
    <button type="button" class="button" onClick=${onClose}>Done</button>
  </section>`;
}

function TokenRow({ agent, token, onRevoked }) {
  const { error, run } = useAction();
  const { id, kind, label, createdAt, expiresAt, revokedAt, userId, todoListId } = token;
  const [question, ask] = useConfirm(() => ({
    title: 'Revoke this token?', text: `“${label || id}” is refused from the next request on. This cannot be undone.`, action: 'Revoke',
    onConfirm: () => run(() => call('DELETE /api/agents/{id}/tokens/{tokenId}', { params: { id: agent, tokenId: id } }).then(onRevoked)),
  }));
  const state = revokedAt ? 'revoked' : isExpired(token) ? 'expired' : 'valid';
  const end = revokedAt ? ['revoked', revokedAt] : expiresAt ? [isExpired(token) ? 'expired' : 'expires', expiresAt] : undefined;
  return html`<li class="item">
    <div class="item-main">
      <p class="item-title"><${Dot} state=${state === 'valid' ? 'done' : 'idle'} /> ${label || 'No label'} <span class="chip">${KINDS[kind] ?? kind}</span></p>
      <p class="meta">${kind === 'widget' ? limits(token) : [`for ${userId}`, token.agents?.length > 1 && `agents: ${token.agents.join(', ')}`, todoListId && `todo list ${todoListId}`, token.tools && `tools: ${token.tools.join(', ') || 'none'}`].filter(Boolean).join(' · ')}</p>
      <p class="meta">made <${Time} at=${createdAt} words=${moment} />${end ? html` · ${end[0]} <${Time} at=${end[1]} />` : ' · until it is revoked'} · <code>${id}</code></p>
      <${ErrorNote} error=${error} />
    </div>
    ${state === 'valid' ? html`<button type="button" class="button quiet small" aria-label=${`Revoke ${label || id}`} onClick=${ask}>Revoke</button>` : html`<span class="meta">${state}</span>`}
    ${question}
  </li>`;
}

/** Origins and caps of a widget's token, in words. */
function limits({ origins = [], caps }) {
  const pages = origins.length > 0 ? origins.join(', ') : 'every page';
  return [pages, caps && `${caps.runsPerMinute} a minute`, caps?.runsPerDay && `${caps.runsPerDay} a day`].filter(Boolean).join(' · ');
}

/** A dialog that goes to anything by a few letters of its name. */

import { html, useEffect, useMemo, useRef, useState } from '../vendor/ui.js';
import { agentId } from '../lib/chat.js';
import { agentName, agents, has, href, listAll } from '../lib/store.js';
import { useLoad } from '../lib/ui.js';

/** Results that are shown. */
const SHOWN = 12;

/** Places by name: views, agents and threads. */
function places(views, threads) {
  return [
    ...(agentId.value ? [{ name: 'New chat', kind: agentName(agentId.value), to: href('chat') }] : []),
    ...agents.value.map(({ id, name }) => ({ name: name || id, kind: 'chat', to: href('chat', id) })),
    ...agents.value.map(({ id, name }) => ({ name: name || id, kind: 'role', to: href('agents', id) })),
    ...[...views, { id: 'account', name: 'Account' }].map(({ id, name }) => ({ name, kind: 'view', to: href(id) })),
    { name: 'New agent', kind: 'view', to: href('agents', 'new') },
    ...(has('jobs') ? [{ name: 'New job', kind: 'view', to: href('jobs', 'new') }, { name: 'Calendar', kind: 'jobs', to: href('jobs', 'calendar') }] : []),
    ...threads.map(({ id, title, agentId: agent }) => ({ name: title || 'Untitled', kind: agentName(agent), to: href('chat', agent, id) })),
  ];
}

/** Returns the places that contain all words; names that begin with the first word come first. */
export function find(all, text) {
  const words = text.trim().toLowerCase().split(/\s+/).filter(Boolean);
  const found = all.filter(({ name, kind }) => words.every((word) => `${name} ${kind}`.toLowerCase().includes(word)));
  const rank = ({ name }) => (words.length > 0 && name.toLowerCase().startsWith(words[0]) ? 0 : 1);
  return found.sort((one, other) => rank(one) - rank(other)).slice(0, SHOWN);
}

export function Palette({ views, onClose }) {
  const dialog = useRef(null);
  const [text, setText] = useState('');
  const [chosen, setChosen] = useState(0);
  const { data = [] } = useLoad(() => (has('threads') ? listAll('GET /api/threads', 'threads', { query: { limit: 200 }, pages: 1 }) : Promise.resolve([])), 'threads');
  const found = useMemo(() => find(places(views, data), text), [data, text]);
  useEffect(() => dialog.current.showModal(), []);
  const go = (place) => {
    onClose();
    if (place) location.hash = place.to;
  };
  const onKeyDown = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && found.length > 0) {
      event.preventDefault();
      setChosen((chosen + step + found.length) % found.length);
    }
    if (event.key === 'Enter') {
      event.preventDefault();
      go(found[chosen]);
    }
  };
  const onInput = (event) => {
    setText(event.target.value);
    setChosen(0);
  };
  return html`<dialog class="dialog palette" ref=${dialog} onClose=${onClose} aria-label="Go to" onClick=${(event) => event.target === dialog.current && dialog.current.close()}>
    <input role="combobox" aria-label="Go to" aria-expanded="true" aria-controls="palette-list" aria-activedescendant=${found.length > 0 ? `palette-${chosen}` : undefined} autofocus
      autocomplete="off" spellcheck="false" placeholder="Go to an agent, a thread or a view" value=${text} onInput=${onInput} onKeyDown=${onKeyDown} />
    <ul id="palette-list" class="plain" role="listbox" aria-label="Places">${found.map((place, order) => html`<li key=${`${place.to} ${place.kind}`} id=${`palette-${order}`} role="option" aria-selected=${order === chosen}
      onClick=${() => go(place)} onPointerMove=${() => order !== chosen && setChosen(order)}><span class="palette-name">${place.name}</span><span class="meta">${place.kind}</span></li>`)}</ul>
    ${found.length === 0 && html`<p class="muted" role="status">Nothing has this name.</p>`}
  </dialog>`;
}

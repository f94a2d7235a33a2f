/** The console's page: navigation, the view of the route, and the sign-in. */

import { html, render, signal, useEffect, useLayoutEffect, useRef, useState } from './vendor/ui.js';
import { agentId, open, stop, live, threadsVersion } from './lib/chat.js';
import { agents, enter, has, href, leaveUnsaved, listAll, retrySession, route, session, signIn, signInError, signOut, status, theme, wantedHash } from './lib/store.js';
import { loadOpen, openCount, usePoll } from './lib/approvals.js';
import { Confirm, ErrorNote, Tabs, lazy, partError, useConfirm, useInView, useLoad, useTitle } from './lib/ui.js';
import { Debug, debugTab, debugTabs } from './tabs/debug.js';
import { Chat, noAgent } from './views/chat.js';

/** The views beside the chat, which are loaded when they are first shown. */
const PAGES = {
  threads: lazy(() => import('./views/threads.js'), 'Threads'),
  agents: lazy(() => import('./views/agents.js'), 'Agents'),
  approvals: lazy(() => import('./views/approvals.js'), 'Approvals'),
  jobs: lazy(() => import('./views/jobs.js'), 'Jobs'),
  usage: lazy(() => import('./views/usage.js'), 'Usage'),
  audit: lazy(() => import('./views/audit.js'), 'Audit'),
  account: lazy(() => import('./views/account.js'), 'AccountView'),
};
const Palette = lazy(() => import('./views/palette.js'), 'Palette');

const isPaletteOpen = signal(false);

/** Width from which chat and debug layer are side by side. */
const wide = matchMedia('(min-width: 1180px)');

const VIEWS = [
  { id: 'chat', name: 'Chat' },
  { id: 'threads', name: 'Threads', feature: 'threads' },
  { id: 'agents', name: 'Agents' },
  { id: 'approvals', name: 'Approvals', feature: 'approvals', count: openCount },
  { id: 'jobs', name: 'Jobs', feature: 'jobs' },
  { id: 'usage', name: 'Usage', feature: 'usage' },
  { id: 'audit', name: 'Audit', feature: 'audit' },
];

/** The view of the route: the chat, if none has its name. */
const shownView = () => (Object.hasOwn(PAGES, route.value.view) ? route.value.view : 'chat');

/** The views whose features the server has. */
const shownViews = () => VIEWS.filter(({ feature }) => !feature || has(feature));

function App() {
  if (session.value === undefined) return html`<main class="splash" aria-busy="true"><${Mark} /></main>`;
  if (session.value === null) return html`<${SignIn} />`;
  return html`<div class="layout">
    <a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <${Side} />
    <main id="main" class="main" tabindex="-1">
      <${ErrorNote} error=${partError.value} reload=${() => location.reload()} />
      <${View} />
    </main>
    ${isPaletteOpen.value && html`<${Palette} views=${shownViews()} onClose=${() => (isPaletteOpen.value = false)} />`}
    ${wantedHash.value !== undefined && html`<${Confirm} title="Leave without saving?" text="The changes of this agent are not saved, and are lost." action="Discard" onConfirm=${leaveUnsaved} onClose=${() => (wantedHash.value = undefined)} />`}
    <p class="visually-hidden" role="status">${status}</p>
  </div>`;
}

function skip(event) {
  event.preventDefault();
  document.getElementById('main').focus();
}

function Mark() {
  return html`<span class="mark" aria-hidden="true"><svg viewBox="0 0 32 32" width="26" height="26"><rect width="32" height="32" rx="9" /><path d="M9 12.5A4.5 4.5 0 0 1 13.5 8h5A4.5 4.5 0 0 1 23 12.5v3a4.5 4.5 0 0 1-4.5 4.5H15l-4.2 3.7c-.5.4-1.3.1-1.3-.6V19A4.5 4.5 0 0 1 9 15.5z" /></svg></span>`;
}

function Side() {
  const view = shownView();
  usePoll(() => (has('approvals') ? loadOpen() : Promise.resolve()), 'approvals');
  const nav = useRef(null);
  useInView(nav, '[aria-current]', [view]);
  return html`<header class="side">
    <a class="brand" href="#/chat" aria-label="Agents: chat"><${Mark} /><span>Agents</span></a>
    <nav class="nav" aria-label="Views" ref=${nav}>
      ${shownViews().map(({ id, name, count }) => html`<a
        key=${id} class="nav-link" href=${href(id)} aria-current=${view === id ? 'page' : undefined}>${name}${count?.() > 0 && html`<span class="badge">${count()}<span class="visually-hidden"> open</span></span>`}</a>`)}
    </nav>
    ${view === 'chat' && agentId.value && has('threads') && html`<${RecentThreads} agentId=${agentId.value} current=${route.value.parts[1]} />`}
    <${Account} />
  </header>`;
}

/** The latest threads of an agent, beside the chat. */
function RecentThreads({ agentId, current }) {
  const query = { agentId, limit: 30 };
  const { data = [] } = useLoad(() => listAll('GET /api/threads', 'threads', { query, pages: 1 }), `${agentId} ${threadsVersion.value}`);
  if (data.length === 0) return null;
  return html`<nav class="recent" aria-label="Recent threads">
    <h2 class="label">Recent</h2>
    <ul class="plain">${data.map((thread) => html`<li key=${thread.id}>
      <a class="recent-link" href=${href('chat', agentId, thread.id)} aria-current=${thread.id === current ? 'page' : undefined} title=${thread.title || 'Untitled'}>
        ${thread.status !== 'idle' && html`<span class=${`dot ${thread.status}`} title=${thread.status}></span>`}<span class="recent-title">${thread.title || 'Untitled'}</span></a>
    </li>`)}</ul>
  </nav>`;
}

function Account() {
  const [question, ask] = useConfirm(() => ({
    title: 'Sign out?', text: 'This session ends. Everywhere ends your other sessions of the console too.', action: 'Sign out',
    waits: true, onConfirm: () => signOut(false), also: { action: 'Everywhere', run: () => signOut(true) },
  }));
  const { userId, companyId } = session.value;
  const themes = { auto: 'light', light: 'dark', dark: 'auto' };
  return html`<div class="account">
    <a class="account-name" href=${href('account')} title=${`${userId} at ${companyId}`} aria-current=${route.value.view === 'account' ? 'page' : undefined}>${userId}<span class="meta"> ${companyId}</span></a>
    <div class="row">
      <button type="button" class="button quiet small wide-only" onClick=${() => (theme.value = themes[theme.value] ?? 'auto')} aria-label=${`Theme: ${theme.value}. Change`}><span class="wide-only">Theme: </span>${theme.value}</button>
      <button type="button" class="button quiet small" onClick=${ask}>Sign out</button>
    </div>
    ${question}
  </div>`;
}

function View() {
  const { view, parts } = route.value;
  const address = href(view, ...parts);
  const shown = useRef(address);
  useEffect(() => {
    // The link that was followed is gone with its view.
    if (shown.current !== address && document.activeElement === document.body) document.getElementById('main').focus({ preventScroll: true });
    shown.current = address;
  }, [address]);
  const Page = PAGES[shownView()] ?? ChatView;
  return html`<${Page} id=${parts[0]} tab=${parts[1]} part=${parts[2]} />`;
}

/** Chat and debug layer: side by side where there is room, else one of them by a row of tabs. */
function ChatView() {
  const { parts, query } = route.value;
  const [isWide, setWide] = useState(wide.matches);
  const find = (id) => agents.value.find((agent) => agent.id === id);
  // The agent that was shown last may have been deleted.
  const agent = (parts[0] ? find(parts[0]) : find(agentId.value) ?? agents.value[0])?.id;
  useEffect(() => {
    wide.onchange = () => setWide(wide.matches);
    return () => (wide.onchange = null);
  }, []);
  useEffect(() => {
    if (agent) open(agent, parts[1], query.get('run'));
  }, [agent, parts[1], query.get('run')]);
  const [shown, setShown] = useState('chat');
  const select = (id) => {
    setShown(id);
    // Kept while other views are shown.
    if (id !== 'chat') debugTab.value = id;
  };
  const wanted = query.get('tab');
  useLayoutEffect(() => {
    if (wanted) select(wanted);
  }, [route.value]);
  if (!agent) return noAgent();
  if (isWide) return html`<div class="split"><${Chat} /><${Debug} key=${agentId.value} tab=${debugTab.value} onTab=${(id) => (debugTab.value = id)} /></div>`;
  const tabs = [{ id: 'chat', name: 'Chat' }, ...debugTabs()];
  return html`<div class="narrow">
    <${Tabs} label="Chat and debug layer" tabs=${tabs} selected=${shown} onSelect=${select} panel="narrow-panel" />
    <div id="narrow-panel" class="narrow-panel" role="tabpanel" aria-labelledby=${`tab-${shown}`}>
      ${shown === 'chat' ? html`<${Chat} />` : html`<${Debug} key=${agentId.value} tab=${shown} onTab=${select} isBare />`}
    </div>
  </div>`;
}

function SignIn() {
  useTitle('Sign in');
  const [code, setCode] = useState('');
  const submit = (event) => {
    event.preventDefault();
    signIn(code);
  };
  return html`<main class="splash">
    <form class="sign-in" onSubmit=${submit}>
      <${Mark} />
      <h1>Agent console</h1>
      <p class="muted">Open the link that <code>agentd dev</code> prints, or paste it here. It works once.</p>
      <${ErrorNote} error=${signInError.value} reload=${retrySession} />
      <label class="field"><span>Link or code</span><input required autocomplete="off" spellcheck="false" value=${code} onInput=${(event) => setCode(event.target.value)} /></label>
      <button class="button primary">Sign in</button>
      <p class="muted small">For another link:</p>
      <pre class="code wrap" tabindex="0" role="region" aria-label="command">agentd console link <span class="nowrap">--user USER</span> <span class="nowrap">--company COMPANY</span></pre>
    </form>
  </main>`;
}

function onKeyDown(event) {
  const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if (event.key === '/' && !isTyping && document.getElementById('composer')) {
    event.preventDefault();
    document.getElementById('composer').focus();
  }
  if (event.key === 'Escape' && live.value && !isTyping && !document.querySelector('dialog[open]')) stop();
  // A browser that fills in a form sends events without a key.
  if (event.key?.toLowerCase() === 'k' && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    if (session.value && !document.querySelector('dialog[open]')) isPaletteOpen.value = true;
  }
}

addEventListener('keydown', onKeyDown);
// Keys of a composition are the input method's. Safari ends a composition before the key that ends it, which has the code 229.
addEventListener('keydown', (event) => (event.isComposing || event.keyCode === 229) && event.stopPropagation(), true);
// A page that was open during an upgrade asks for files that are gone. It is loaded again if the server's page names others.
addEventListener('unhandledrejection', async ({ reason }) => {
  if (!/dynamically imported module|module script/.test(String(reason))) return;
  const page = await fetch(document.baseURI).then((response) => (response.ok ? response.text() : ''), () => '');
  const [hash] = import.meta.url.split('/').slice(-2);
  if (page && !page.includes(hash)) location.reload();
});

await enter();
const root = document.getElementById('app');
root.replaceChildren();
render(html`<${App} />`, root);

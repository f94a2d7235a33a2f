/** Small components that several views share. */

import { html, signal, useEffect, useLayoutEffect, useRef, useState } from '../vendor/ui.js';
import { dateTime, remaining } from './format.js';
import { MarkdownView, copyText } from './markdown.js';
import { call, status } from './store.js';

const ADVICE = {
  NO_CONNECTOR: 'The agent configures no backend. Add one in its role.',
  SIGN_IN_REQUIRED: 'Sign in to your subscription first.',
  THREAD_BUSY: 'Another run of this thread has not ended. Wait for it, or stop it.',
  THREAD_FULL: 'The thread is full. Start a new chat.',
  RATE_LIMITED: 'Too many requests. Wait a moment, then try again.',
  BUDGET_EXCEEDED: 'A budget is spent. The limits of the Usage view say when it is free again.',
  BACKEND_UNREACHABLE: 'The model’s server cannot be reached. Check its address and that it runs.',
  BACKEND_FAILED: 'The model’s server answered with an error. The log has it under the request id.',
  BACKEND_TIMEOUT: 'The model’s server did not answer in time.',
  STREAM_TRUNCATED: 'The answer was cut off. Try again.',
  CONTEXT_LENGTH_EXCEEDED: 'The prompt is too long for the model. Shorten the conversation or the documents.',
  TOOL_LOOP_LIMIT: 'The model kept calling tools. See the Events tab.',
  OUTBOUND_BLOCKED: 'The outbound policy blocks the address. The operator can allow it in OUTBOUND_ALLOW.',
  NOT_CONFIGURED: 'The operator has to set what is missing.',
  STORE_UNAVAILABLE: 'The data cannot be written now. Try again in a moment.',
  PRECONDITION_FAILED: 'It was changed meanwhile. Load it again before you save.',
  FORBIDDEN: 'You may read this but not change it.',
  NETWORK: 'The connection failed. Check that the server runs.',
};

/** Returns true if the same request would fail again. */
const isFinal = ({ status }) => status >= 400 && status < 500 && status !== 429;

/** An error with its code, and what to do about it; nothing without one. `reload` asks again for what could not be loaded. */
export function ErrorNote({ error, reload, isLoading, children }) {
  if (!error) return null;
  const advice = ADVICE[error.code];
  return html`<div class="note note-error" role="alert">
    <p><code class="code-word">${error.code ?? 'ERROR'}</code> ${error.message}</p>
    ${advice && html`<p class="muted">${advice}</p>`}
    ${error.retryAfter > 0 && html`<p class="muted small">possible again in ${remaining(error.retryAfter)}</p>`}
    ${error.requestId && html`<p class="muted small">request <code>${error.requestId}</code></p>`}
    ${reload && !isFinal(error) && html`<${Retry} reload=${reload} isLoading=${isLoading} />`}
    ${children}
  </div>`;
}

/** The button that asks again for what could not be loaded. If it disappears with the focus, the region around it gets the focus, and the status line announces what was loaded. */
function Retry({ reload, isLoading }) {
  const root = useRef(null);
  useLayoutEffect(() => {
    const { hash } = location;
    return () => {
      const button = root.current;
      if (document.activeElement !== button) return;
      const region = button.closest('[tabindex]');
      // Afterwards the button is in its note, which was removed as a whole, or alone, if the note shows another error now.
      queueMicrotask(() => {
        region?.focus({ preventScroll: true });
        if (button.parentNode && location.hash === hash) status.value = 'loaded';
      });
    };
  }, []);
  const onClick = () => {
    status.value = '';
    reload();
  };
  return html`<button type="button" class="button small" ref=${root} onClick=${onClick}>${isLoading ? 'Loading…' : 'Try again'}</button>`;
}

/** Markdown of a text that may grow. */
export function Markdown({ text, isOpen = false }) {
  const root = useRef(null);
  const view = useRef(null);
  useLayoutEffect(() => {
    view.current ??= new MarkdownView(root.current);
    view.current.update(text, !isOpen);
  }, [text, isOpen]);
  return html`<div class="markdown" dir="auto" ref=${root}></div>`;
}

const REASONS = { noContainer: 'the role has no such container', fieldMissing: 'has no', fieldBlank: 'has a blank' };

/** The rules by which a backend is selected, each with its outcome. */
export function Selection({ rules }) {
  if (!rules) return null;
  return html`<ol class="rules">
    ${rules.map(({ rule, matched, reason, field }) => html`<li key=${rule} class=${matched ? 'matched' : ''}>
      <code>${rule}</code> <span class="muted">${matched ? 'matched' : [REASONS[reason] ?? reason, field].filter(Boolean).join(' ')}</span>
    </li>`)}
  </ol>`;
}

/** A button that copies a text. */
export function Copy({ text, label = 'Copy' }) {
  const [done, setDone] = useState('');
  useEffect(() => {
    const timer = done && setTimeout(() => setDone(''), 1500);
    return () => clearTimeout(timer);
  }, [done]);
  const copy = async () => setDone(await copyText(typeof text === 'function' ? text() : text));
  return html`<button type="button" class="button quiet small" onClick=${copy}>${done || label}</button>`;
}

/** Text, or a value as JSON, in a box that scrolls, and that the keyboard reaches. It is not a landmark but a `group` where several have the same label. */
export function Code({ value, text = JSON.stringify(value, null, 2), label, role = 'region', wrap = false }) {
  return html`<pre class=${wrap ? 'code wrap' : 'code'} tabindex="0" role=${role} aria-label=${label}>${text}</pre>`;
}

/** A time in the user's zone, with that of UTC on hover. */
export const Time = ({ at, words = dateTime }) => html`<time datetime=${at} title=${at}>${words(at)}</time>`;

/** The colour of a state, beside its words. */
export const Dot = ({ state }) => html`<span class=${`dot ${state}`} aria-hidden="true"></span>`;

/** Names and values, `[name, value]`; those without a value are left out. */
export function Facts({ facts, kind = 'facts' }) {
  return html`<dl class=${kind}>${facts.filter(([, value]) => value !== undefined && value !== null)
    .map(([name, value], place) => html`<div key=${place}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** The options `[value, words]` of a select. */
export const options = (all) => all.map(([value, words]) => html`<option key=${value} value=${value}>${words}</option>`);

/** A choice of `[value, words]`, whose label is for screen readers alone. */
export function Select({ label, all, onSelect, ...more }) {
  return html`<label><span class="visually-hidden">${label}</span><select ...${more} onChange=${({ target }) => onSelect(target.value)}>${options(all)}</select></label>`;
}

/** A field for the words of a search, whose label is for screen readers alone. */
export function Search({ label, value, onSearch, hint }) {
  return html`<label class="search"><span class="visually-hidden">${label}</span><input type="search" placeholder=${hint} value=${value} onInput=${({ target }) => onSearch(target.value)} /></label>`;
}

/** Names what is shown in the title of the window. */
export const useTitle = (title) => useEffect(() => { document.title = `${title} · Agent console`; }, [title]);

/** A view that fills the page. `actions` are beside its title, and `back` is above it. */
export function Page({ name, title, actions, back, kind = '', children }) {
  useTitle(title);
  return html`<section class=${`page ${kind}`} aria-labelledby=${`${name}-title`}>
    ${back}
    <header class="page-head"><h1 id=${`${name}-title`}>${title}</h1>${actions}</header>
    ${children}
  </section>`;
}

/** A table that scrolls within itself. `head` has the names of the columns; those of numbers are in `numbers`. */
export function Table({ label, head, kind = '', numbers = [], children, ...more }) {
  return html`<div class="table-scroll" tabindex="0" role="region" aria-label=${label} ...${more}><table class=${`table ${kind}`}>
    <thead><tr>${head.map((name) => html`<th key=${name} scope="col" class=${numbers.includes(name) ? 'num' : ''}>${name}</th>`)}</tr></thead>${children}</table></div>`;
}

/** Names of the folds that are open. */
const unfolded = new Set();

/** Something that is folded below its summary. With a `name`, it is open as it was when it was shown last. */
export function Fold({ summary, kind = '', name, children, ...more }) {
  const root = useRef(null);
  const [isOpen] = useState(unfolded.has(name));
  // The event `toggle` comes later, when this may have been replaced.
  const onClick = () => unfolded[root.current.open ? 'delete' : 'add'](name);
  return html`<details class=${`fold ${kind}`} ref=${root} ...${name && { open: isOpen }} ...${more}><summary onClick=${onClick}>${summary}</summary><div class="fold-body">${children}</div></details>`;
}

/** What is shown in place of data that are not there: the error, or that they are loaded. @param {ReturnType<typeof useLoad>} load */
export function pending(load) {
  if (load.error) return html`<${ErrorNote} ...${load} />`;
  return load.data ? undefined : html`<p class="muted">Loading…</p>`;
}

/** Runs what the user asks for, and keeps how it is: `{error, isBusy, run}`. `run` returns true if it went well. */
export function useAction() {
  const [state, setState] = useState({});
  const run = async (work) => {
    setState({ isBusy: true });
    try {
      await work();
      setState({});
      return true;
    } catch (error) {
      setState({ error });
      return false;
    }
  };
  return { ...state, run };
}

/** A dialog that asks before something is lost. `also` is another way to do it: `{action, run}`; `keep` closes it. */
export function Confirm({ title, text, action, onConfirm, onClose, also, keep = 'Cancel', waits = false }) {
  const dialog = useRef(null);
  const state = useAction();
  useEffect(() => dialog.current.showModal(), []);
  const after = (run) => async () => {
    if (waits ? await state.run(run) : (run(), true)) dialog.current?.close();
  };
  return html`<dialog class="dialog" ref=${dialog} onClose=${onClose} aria-labelledby="dialog-title">
    <h2 id="dialog-title">${title}</h2>
    <p>${text}</p>
    <${ErrorNote} error=${state.error} />
    <div class="row end">
      <button type="button" class="button" onClick=${() => dialog.current.close()} autofocus>${keep}</button>
      ${also && html`<button type="button" class="button" disabled=${state.isBusy} onClick=${after(also.run)}>${also.action}</button>`}
      <button type="button" class="button danger" disabled=${state.isBusy} onClick=${after(onConfirm)}>${action}</button>
    </div>
  </dialog>`;
}

/** A dialog that asks, and the function that opens it: `question` gets what that is called with, and returns the properties of `Confirm`. */
export function useConfirm(question) {
  const [asked, setAsked] = useState(undefined);
  return [asked !== undefined && html`<${Confirm} ...${question(asked)} onClose=${() => setAsked(undefined)} />`, (about = true) => setAsked(about)];
}

/**
 * Keeps an item of a row in view, as the row scrolls in a narrow window: after each change of `values`, and while the window gets narrower.
 * The page does not scroll. An observer also reports the first size.
 */
export const useInView = (row, selector, values) => useEffect(() => {
  const observer = new ResizeObserver(() => row.current?.querySelector(selector)?.scrollIntoView({ block: 'nearest', container: 'nearest' }));
  observer.observe(row.current);
  return () => observer.disconnect();
}, values);

/** Tabs by the ARIA pattern: arrows move, Home and End go to the ends. */
export function Tabs({ label, tabs, selected, onSelect, panel }) {
  const list = useRef(null);
  useInView(list, '[aria-selected=true]', [selected, tabs.length]);
  // An address may select none of them.
  const place = Math.max(0, tabs.findIndex(({ id }) => id === selected));
  const move = (event) => {
    const places = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: -1 };
    if (!(event.key in places)) return;
    event.preventDefault();
    const { id } = tabs.at(places[event.key] % tabs.length);
    onSelect(id);
    list.current.querySelector(`#tab-${id}`).focus();
  };
  return html`<div class="tabs" role="tablist" aria-label=${label} ref=${list} onKeyDown=${move}>
    ${tabs.map(({ id, name, count }, of) => html`<button
      type="button" role="tab" key=${id} id=${`tab-${id}`} class="tab" aria-selected=${id === selected}
      aria-controls=${panel} tabindex=${of === place ? 0 : -1} onClick=${() => onSelect(id)}
    >${name}${count !== undefined && html`<span class="count">${count}</span>`}</button>`)}
  </div>`;
}

/** Why a part of the page is absent. */
export const partError = signal(undefined);

/**
 * A component that is loaded when it is first shown, so that the page's start is small.
 *
 * @param {() => Promise<Record<string, any>>} load Imports the component's module.
 * @param {string} name
 */
export function lazy(load, name) {
  let View;
  return function Lazy(props) {
    const [, setLoaded] = useState(Boolean(View));
    // Another one may have loaded it between this one's first drawing and its effect.
    useEffect(() => {
      load().then((found) => {
        View = found[name];
        setLoaded(true);
        partError.value = undefined;
      }, (error) => {
        partError.value = { code: 'NETWORK', message: 'A part of the page could not be loaded.' };
        throw error;
      });
    }, []);
    return View && html`<${View} ...${props} />`;
  };
}

/** Time between the last keystroke and a request. */
const PAUSE_MS = 350;

/** A value that follows another one after a pause. */
export function usePaused(value) {
  const [paused, setPaused] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setPaused(value), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [value]);
  return paused;
}

/** Loads something when `key` changes, or again when the browser is online again, and tells how it is: `{data, error, isLoading, reload}`, with the `key` that the data are of. */
export function useLoad(load, key) {
  const [state, setState] = useState({ isLoading: true });
  const [round, setRound] = useState(0);
  useEffect(() => {
    const abort = new AbortController();
    setState((state) => ({ ...state, isLoading: true }));
    load(abort.signal).then(
      (data) => !abort.signal.aborted && setState({ data, key, isLoading: false }),
      // What is shown stays while its server cannot be reached.
      (error) => !abort.signal.aborted && setState((state) => ({ ...state.key === key && !isFinal(error) && state, error, isLoading: false })),
    );
    return () => abort.abort();
  }, [key, round]);
  const reload = () => {
    setState((state) => ({ ...state, isLoading: true }));
    setRound((round) => round + 1);
  };
  useEffect(() => {
    if (!state.error || isFinal(state.error)) return undefined;
    addEventListener('online', reload);
    return () => removeEventListener('online', reload);
  }, [state.error]);
  return { ...state, reload };
}

/** Loads the data of a route, again if the options change. */
export const useGet = (route, options) => useLoad(async (signal) => (await call(route, { ...options, signal })).data, route + JSON.stringify(options));

/** Components and hooks of the views beside the chat, which its first load does without: long lists, their menus and meters. */

import { html, useLayoutEffect, useRef, useState } from '../vendor/ui.js';
import { number } from './format.js';
import { call } from './store.js';
import { useLoad } from './ui.js';

/** The first elements of a list, and the button that shows all of them: `[shown, button]`. */
export function useFirst(all, count) {
  const [isWhole, setWhole] = useState(false);
  const shown = isWhole ? all : all.slice(0, count);
  return [shown, shown.length < all.length && html`<p class="table-foot"><button type="button" class="button" onClick=${() => setWhole(true)}>Show all ${number(all.length)}</button></p>`];
}

/**
 * Returns the ref of an element that has a button, or the form that the button opens. Whichever of them replaces the other, the focus
 * goes to it: the one that had the focus is gone. `isReplaced` if it is drawn in place of something else that had the focus.
 */
export function useOpenedForm(isOpen, isReplaced = false) {
  const root = useRef(null);
  const before = useRef(isReplaced ? undefined : isOpen);
  useLayoutEffect(() => {
    if (before.current !== isOpen) root.current.querySelector(isOpen ? 'input' : 'button').focus();
    before.current = isOpen;
  }, [isOpen]);
  return root;
}

/** Ref of a list. A row, or a button of it, that disappears with the focus gives it to the same button of the next row, else of one before, else to the region around the list. A button that is moved, or enabled again, keeps the focus. */
export function keepFocus(list) {
  if (!list) return;
  let button, place;
  const alike = () => [...list.querySelectorAll('button')].filter(({ textContent }) => textContent === button.textContent);
  list.addEventListener('focusin', ({ target }) => {
    button = target;
    place = alike().indexOf(target);
  });
  // The user may have left the list. A button that is disabled, which acts, loses the focus too.
  list.addEventListener('focusout', () => setTimeout(() => list.contains(document.activeElement) || button?.disabled || (button = undefined)));
  new MutationObserver(() => {
    if (!button || document.activeElement !== document.body) return;
    const left = alike();
    (button.isConnected ? button : left[place] ?? left.at(-1) ?? list.closest('[tabindex]'))?.focus();
  }).observe(list, { childList: true, subtree: true, attributeFilter: ['disabled'] });
}

/** A limit, and how far it is used. */
export function Meter({ name, value, max, children }) {
  return html`<div class="limit">
    <p class="row between"><span>${name}</span><span class="meta">${children}</span></p>
    <progress max=${max} value=${Math.min(max, value)} aria-label=${`${name}: part that is used`} class=${value >= max * 0.9 ? 'full' : ''}></progress>
  </div>`;
}

/** A button that opens a list of further actions: `[{name, run | href, download, isDanger}]`. Escape and a click elsewhere close it. */
export function Menu({ label, name = 'More', items }) {
  const [isOpen, setOpen] = useState(false);
  const root = useRef(null);
  useLayoutEffect(() => {
    if (!isOpen) return undefined;
    root.current.querySelector('.menu-item')?.focus();
    const close = (event) => !root.current?.contains(event.target) && setOpen(false);
    document.addEventListener('pointerdown', close);
    document.addEventListener('focusin', close);
    return () => {
      document.removeEventListener('pointerdown', close);
      document.removeEventListener('focusin', close);
    };
  }, [isOpen]);
  const onKeyDown = (event) => {
    const entries = [...root.current.querySelectorAll('.menu-item')];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === 'Escape' && isOpen) {
      event.stopPropagation();
      leave();
    }
    if (!step || entries.length === 0) return;
    event.preventDefault();
    entries.at((entries.indexOf(document.activeElement) + step) % entries.length).focus();
  };
  const leave = () => {
    setOpen(false);
    root.current.querySelector('button').focus();
  };
  // A dialog gives the focus back to what has it when it opens.
  const after = (run) => () => {
    leave();
    run?.();
  };
  return html`<div class="menu" ref=${root} onKeyDown=${onKeyDown}>
    <button type="button" class="button quiet small" aria-expanded=${isOpen} aria-label=${label} onClick=${() => setOpen(!isOpen)}>${name}</button>
    ${isOpen && html`<ul class="menu-list plain">${items.map(({ name, run, href, download, isDanger }) => html`<li key=${name}>${href
      ? html`<a class="menu-item" href=${href} download=${download} onClick=${after()}>${name}</a>`
      : html`<button type="button" class=${`menu-item ${isDanger ? 'danger-text' : ''}`} onClick=${after(run)}>${name}</button>`}</li>`)}</ul>`}
  </div>`;
}

/** Loads the list `name` of a route page by page; an empty one without a route. There are no items while those are of other options; `reload` asks again for what has failed. */
export function usePages(route, name, { query, ...options }) {
  const key = JSON.stringify([query, options]);
  const load = async (cursor, signal) => {
    const { data } = route ? await call(route, { ...options, query: { ...query, cursor }, signal }) : { data: { [name]: [] } };
    return { items: data[name], nextCursor: data.nextCursor };
  };
  const first = useLoad((signal) => load(undefined, signal), key);
  const [more, setMore] = useState({});
  const page = first.key === key ? first.data : undefined;
  // A first page that is loaded again has none of the pages after it.
  const { pages = [], ...rest } = more.page === page ? more : {};
  const all = page ? [page, ...pages] : [];
  const { nextCursor: cursor } = all.at(-1) ?? {};
  const loadMore = async () => {
    setMore({ ...rest, page, pages, isLoading: true });
    const found = await load(cursor).then((next) => ({ pages: [...pages, next] }), (error) => ({ pages, error }));
    setMore((more) => (more.page === page ? { page, ...found } : more));
  };
  return { isLoading: first.isLoading || rest.isLoading, error: first.error ?? rest.error, items: page && all.flatMap(({ items }) => items), cursor, loadMore, reload: rest.error && !first.error ? loadMore : first.reload };
}

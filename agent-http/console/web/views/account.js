/** The signed-in user: the subscription, the sessions, and the look of the page. */

import { html, useEffect, useRef, useState } from '../vendor/ui.js';
import { dateTime } from '../lib/format.js';
import { Meter } from '../lib/lists.js';
import { call, has, session, signOut, theme } from '../lib/store.js';
import { Copy, ErrorNote, Facts, Page, Time, pending, useAction, useConfirm, useGet } from '../lib/ui.js';

const THEMES = { auto: 'As the system', light: 'Light', dark: 'Dark' };
/** Longest wait between two looks at the status of a sign-in, in milliseconds. */
const MAX_POLL_MS = 30_000;

export function AccountView() {
  return html`<${Page} name="account" title="Account">
    <${User} />
    ${has('subscription') && html`<${Subscription} />`}
    <${Sessions} />
    <${Theme} />
  <//>`;
}

function User() {
  const { userId, companyId, roles, version } = session.value;
  return html`<section class="block" aria-labelledby="user-title">
    <h2 id="user-title">You</h2>
    <${Facts} facts=${[['User', userId], ['Company', companyId], ['Role', roles.join(', ')], ['Application', `version ${version}`]]} />
  </section>`;
}

function Sessions() {
  const [question, ask] = useConfirm((isEverywhere) => ({
    title: isEverywhere ? 'Sign out everywhere?' : 'Sign out here?', text: isEverywhere ? 'All of your sessions of the console end, in every browser.' : 'This session ends.',
    action: 'Sign out', waits: true, onConfirm: () => signOut(isEverywhere),
  }));
  const { expiresAt } = session.value;
  return html`<section class="block" aria-labelledby="sessions-title">
    <h2 id="sessions-title">Sessions</h2>
    <p class="muted">${expiresAt ? html`This session ends on <${Time} at=${expiresAt} /> unless you use the console before, and seven days after its beginning in any case.` : 'This session is not one of the console.'}</p>
    <div class="row">
      <button type="button" class="button" onClick=${() => ask(false)}>Sign out here</button>
      <button type="button" class="button" onClick=${() => ask(true)}>Sign out everywhere</button>
    </div>
    ${question}
  </section>`;
}

function Theme() {
  return html`<fieldset class="block choices">
    <legend><h2>Theme</h2></legend>
    ${Object.entries(THEMES).map(([name, words]) => html`<label key=${name} class="choice">
      <input type="radio" name="theme" value=${name} checked=${theme.value === name} onChange=${() => (theme.value = name)} /> ${words}</label>`)}
  </fieldset>`;
}

function Subscription() {
  const state = useGet('GET /api/coding');
  const [begun, setBegun] = useState(undefined);
  const [ended, setEnded] = useState(undefined);
  const { error, isBusy, run } = useAction();
  const act = (work) => {
    if (ended) setBegun(undefined);
    setEnded(undefined);
    return run(work);
  };
  const begin = () => act(async () => setBegun((await call('POST /api/coding/sign-in')).data));
  const cancel = () => act(async () => {
    await call('DELETE /api/coding/sign-in/{id}', { params: { id: begun.signInId } });
    setBegun(undefined);
  });
  // The outcome is shown together with the state that it brings.
  const end = (outcome) => {
    setEnded(outcome);
    state.reload();
  };
  const isOver = ended && !state.isLoading;
  const signOutOfIt = () => act(async () => {
    await call('DELETE /api/coding/sign-in');
    state.reload();
  });
  const { data: view } = state;
  return html`<section class="block" aria-labelledby="subscription-title">
    <h2 id="subscription-title">Subscription</h2>
    <p class="muted">Agents with a <code>SubscriptionConnector</code> answer you by your own subscription at the model’s vendor.</p>
    ${error ? html`<${ErrorNote} error=${error} />` : pending(state)}
    ${isOver && html`<${Ended} outcome=${ended} />`}
    ${begun && !isOver ? html`<${SignIn} key=${begun.signInId} begun=${begun} onEnd=${end} onCancel=${cancel} />`
      : view && (view.signedIn ? html`<${SignedIn} view=${view} onReload=${() => act(state.reload)} onSignOut=${signOutOfIt} />` : html`<${SignedOut} view=${view} isBusy=${isBusy} onBegin=${begin} />`)}
  </section>`;
}

function SignedOut({ view, isBusy, onBegin }) {
  return html`<p>${view.account ? 'The sign-in has ended. Sign in again.' : 'You are not signed in.'}</p>
    <div class="row"><button type="button" class="button primary" disabled=${isBusy} onClick=${onBegin}>Sign in</button></div>`;
}

const ENDINGS = {
  complete: 'You are signed in.',
  denied: 'The sign-in was refused at the vendor’s page.',
  expired: 'The code has expired. Begin again.',
  gone: 'The sign-in was cancelled elsewhere.',
  failed: 'The sign-in has failed.',
};

function Ended({ outcome: { status, code } }) {
  return html`<p class=${`note ${status === 'complete' ? 'note-good' : 'note-error'}`} role="status">${ENDINGS[status]}${code && html` <code>${code}</code>`}</p>`;
}

/** Asks for the status of a sign-in until it is final or its code has expired. */
function useSignIn({ signInId, interval, expiresIn }, onEnd) {
  const end = useRef(onEnd);
  end.current = onEnd;
  const [secondsLeft, setSecondsLeft] = useState(expiresIn);
  useEffect(() => {
    const abort = new AbortController();
    const until = Date.now() + expiresIn * 1000;
    const clock = setInterval(() => setSecondsLeft(Math.max(0, Math.round((until - Date.now()) / 1000))), 1000);
    const pause = Math.min(interval * 1000, MAX_POLL_MS);
    let timer;
    const look = async () => {
      let outcome = { status: 'pending' };
      try {
        outcome = await call('GET /api/coding/sign-in/{id}', { params: { id: signInId }, signal: abort.signal }).then(({ data }) => data);
      } catch (error) {
        // The server is asked again, as long as the code is good.
        if (error.status === 404) outcome = { status: 'gone' };
      }
      if (abort.signal.aborted) return;
      if (outcome.status === 'pending' && Date.now() > until) outcome = { status: 'expired' };
      if (outcome.status === 'pending') timer = setTimeout(look, pause);
      else end.current(outcome);
    };
    timer = setTimeout(look, pause);
    return () => {
      abort.abort();
      clearTimeout(timer);
      clearInterval(clock);
    };
  }, [signInId]);
  return secondsLeft;
}

/** The code of a sign-in, and where it is entered. */
function SignIn({ begun, onEnd, onCancel }) {
  const { userCode, verificationUri, notice } = begun;
  const secondsLeft = useSignIn(begun, onEnd);
  const isLink = /^https?:\/\//i.test(verificationUri);
  const left = `${Math.floor(secondsLeft / 60)}:${String(secondsLeft % 60).padStart(2, '0')}`;
  return html`<div class="device">
    <ol class="device-steps">
      <li>Open ${isLink ? html`<a href=${verificationUri} target="_blank" rel="noopener noreferrer">${verificationUri}</a>` : html`<code>${verificationUri}</code>`}.</li>
      <li>Enter this code there:
        <p class="device-code"><span class="user-code" role="status" aria-label="code">${userCode}</span><${Copy} text=${userCode} label="Copy the code" /></p></li>
      <li>Confirm. This page sees it by itself.</li>
    </ol>
    <p class="note note-warn">${notice}</p>
    <div class="row between">
      <p class="meta"><span role="status">Waiting for your confirmation.</span> The code is good for <span class="nowrap">${left}</span>.</p>
      <button type="button" class="button small" onClick=${onCancel}>Cancel</button>
    </div>
  </div>`;
}

function SignedIn({ view, onReload, onSignOut }) {
  const [question, ask] = useConfirm(() => ({
    title: 'Sign out of the subscription?', text: 'The tokens are forgotten here and revoked at the vendor. Agents that answer by your subscription ask you to sign in again.',
    action: 'Sign out', onConfirm: onSignOut,
  }));
  const { plan, account, refreshedAt, limits } = view;
  const { primary, secondary, credits } = limits ?? {};
  return html`
    <${Facts} facts=${[['Plan', plan], ['Account', account], ['Renewed', refreshedAt && dateTime(refreshedAt)], ['Credits', credits && creditWords(credits)]]} />
    ${[primary, secondary].filter(Boolean).map((limit, place) => html`<${Limit} key=${place} limit=${limit} place=${place} />`)}
    <p class="meta">${limits ? 'The limits are those of the vendor’s latest answer.' : 'The vendor’s limits are shown after its next answer.'}</p>
    <div class="row">
      <button type="button" class="button" onClick=${onReload}>Reload</button>
      <button type="button" class="button" onClick=${ask}>Sign out of the subscription</button>
    </div>
    ${question}`;
}

const creditWords = ({ hasCredits, unlimited, balance }) => (unlimited ? 'unlimited' : hasCredits ? balance ?? 'yes' : 'none');

/** A limit's window in words. @param {number | undefined} minutes */
function windowWords(minutes, place) {
  if (!minutes) return place === 0 ? 'Shorter window' : 'Longer window';
  if (minutes % 1440 === 0) return minutes === 1440 ? 'A day' : `${minutes / 1440} days`;
  return minutes % 60 === 0 ? `${minutes / 60} hours` : `${minutes} minutes`;
}

function Limit({ limit: { usedPercent, windowMinutes, resetsAt }, place }) {
  return html`<${Meter} name=${windowWords(windowMinutes, place)} max=${100} value=${Math.max(0, usedPercent)}>${Math.round(usedPercent)} % used${resetsAt && html`, resets <${Time} at=${resetsAt} />`}<//>`;
}

/** `<agent-chat>`: a chat with one agent, for any page. */

import { readRun } from '../client/follow.js';
import { MarkdownView, element } from '../lib/markdown.js';
import { Service, randomText } from './service.js';
import { styleSheet } from './styles.js';

const TEXT = {
  title: 'Chat', open: 'Open chat', close: 'Close chat', reset: 'New conversation', log: 'Conversation', message: 'Message',
  placeholder: 'Write a message', send: 'Send', stop: 'Stop', you: 'You: ', agent: 'Answer: ', retry: 'Try again',
  answering: 'Answering', complete: 'Answer complete', stopped: 'Stopped', failed: 'The answer could not be finished.',
  lost: 'Connection lost. Reconnecting…', offline: 'No connection.', late: 'The question is no longer open.',
  asks: (question) => `Your decision is needed: ${question}`,
  wait: (seconds) => `You can write again in ${seconds < 100 ? `${seconds} s` : seconds < 6000 ? `${Math.ceil(seconds / 60)} min` : `${Math.ceil(seconds / 3600)} h`}.`,
  busy: (seconds) => `The server is busy. Next attempt in ${seconds} s.`,
};
const ICON = {
  chat: 'M20 11.5c0 4.1-3.6 7.5-8 7.5-1.2 0-2.3-.2-3.3-.7L4.5 19.5l1.1-3.6C4.6 14.7 4 13.2 4 11.5 4 7.4 7.6 4 12 4s8 3.4 8 7.5Z',
  close: 'M6 6l12 12M18 6 6 18', send: 'M12 19V5M6 11l6-6 6 6', stop: 'M7 7h10v10H7z',
  reset: 'M12.5 20H20M16.2 5.3a1.9 1.9 0 0 1 2.7 2.7L8.5 18.4 4.8 19.2l.8-3.7Z',
};
const SVG = 'http://www.w3.org/2000/svg';
/** Attempts to attach to a run again: about ten minutes. */
const MAX_ATTEMPTS = 44;
/** Suggestions that are shown. */
const MAX_SUGGESTIONS = 4;
/** Longest wait for a server that is unavailable, in seconds. The times of limits and budgets are as long as they are. */
const MAX_UNAVAILABLE_S = 300;
/** Length of a message in UTF-16 code units. */
const MAX_MESSAGE_LENGTH = 16_000;
/** Statuses of a decision that is not taken: the question is not open, or not as it was. */
const LATE = new Set([400, 404, 409, 410]);
/** Distance from the end of the conversation within which it follows the answer, in pixels. */
const FOLLOW_PX = 48;

function icon(name) {
  const svg = document.createElementNS(SVG, 'svg');
  const path = svg.appendChild(document.createElementNS(SVG, 'path'));
  svg.setAttribute('viewBox', '0 0 24 24');
  svg.setAttribute('aria-hidden', 'true');
  path.setAttribute('d', ICON[name]);
  return svg;
}

function button(className, label, children, onClick) {
  const node = element('button', className, children);
  node.type = 'button';
  if (label) node.setAttribute('aria-label', label);
  node.addEventListener('click', onClick);
  return node;
}

const attributes = (node, values) => {
  for (const [name, value] of Object.entries(values)) node.setAttribute(name, value);
  return node;
};

class AgentChat extends HTMLElement {
  static observedAttributes = ['token', 'api', 'store', 'title', 'greeting', 'suggestions', 'position', 'theme', 'lang', 'open'];

  /** What the page tells the agent with `page-context="json"`. */
  pageContext;

  #ui = {};
  #isOpen = false;
  /** @type {Service | undefined} */
  #service;
  /** The load of the thread that is shown, once the chat has been opened. @type {Promise<void> | undefined} */
  #loaded;
  /** The conversation of this page, which goes with each message until the application has it. */
  #history = [];
  /** The run in progress: `{id, abort, isStopped}`. */
  #run;
  /** Calls that wait for the visitor. @type {import('./questions.js').Questions | undefined} */
  #questions;
  #timer;
  /** True while the conversation follows the answer. */
  #follows = true;
  #dark = matchMedia('(prefers-color-scheme: dark)');
  #restyle = () => this.#applyStyle();

  constructor() {
    super();
    const shadow = this.attachShadow({ mode: 'closed' });
    shadow.adoptedStyleSheets = [styleSheet()];
    shadow.append(this.#build());
  }

  #build() {
    const ui = this.#ui;
    ui.launcher = button('launcher', TEXT.open, [icon('chat')], () => this.toggle());
    ui.title = attributes(element('h2', '', [TEXT.title]), { id: 'title' });
    const reset = button('tool', TEXT.reset, [icon('reset')], () => this.reset());
    const close = button('tool', TEXT.close, [icon('close')], () => this.close());
    ui.log = attributes(element('div', 'log'), { role: 'log', 'aria-live': 'off', 'aria-label': TEXT.log, tabindex: 0 });
    ui.log.addEventListener('scroll', () => {
      this.#follows = ui.log.scrollHeight - ui.log.scrollTop - ui.log.clientHeight < FOLLOW_PX;
    });
    ui.status = attributes(element('div', 'only-read'), { role: 'status' });
    ui.noticeText = element('span');
    ui.noticeButton = button('', '', [TEXT.retry], () => this.#retry());
    ui.notice = element('div', 'notice', [ui.noticeText, ui.noticeButton]);
    ui.notice.hidden = true;
    ui.input = attributes(element('textarea'), { 'aria-label': TEXT.message, part: 'input', rows: 1 });
    attributes(ui.input, { placeholder: TEXT.placeholder, maxlength: MAX_MESSAGE_LENGTH });
    ui.send = button('send', TEXT.send, [icon('send')], () => (this.#run ? this.#stop() : this.send(ui.input.value)));
    ui.composer = element('div', 'composer', [ui.input, ui.send]);
    const head = element('div', 'head', [ui.title, reset, close]);
    ui.panel = element('div', 'panel', [head, ui.log, ui.status, ui.notice, ui.composer]);
    attributes(ui.panel, { id: 'panel', role: 'dialog', 'aria-labelledby': 'title', part: 'panel' });
    attributes(ui.launcher, { part: 'button', 'aria-expanded': false, 'aria-controls': 'panel' });
    ui.panel.hidden = true;
    ui.input.addEventListener('input', () => this.#fit());
    ui.input.addEventListener('keydown', (event) => {
      // Safari ends a composition before the key that ends it, which has the code 229.
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing || event.keyCode === 229) return;
      event.preventDefault();
      if (!this.#run) this.send(ui.input.value);
    });
    ui.panel.addEventListener('keydown', (event) => {
      // The page's own keys are for the page's own fields.
      event.stopPropagation();
      if (event.key === 'Escape' && !event.isComposing) this.close();
    });
    // An empty title keeps that of the element, which is its name, from being shown wherever the pointer is.
    ui.root = attributes(element('div', 'root', [ui.panel, ui.launcher]), { title: '' });
    return ui.root;
  }

  connectedCallback() {
    this.#dark.addEventListener('change', this.#restyle);
    this.#applyStyle();
    this.#fit();
    if (!this.#service) this.#begin();
    else if (this.#isOpen) this.#load();
    this.#emit('ready');
    if (this.hasAttribute('open') || (innerWidth > 480 && this.#remembered)) this.#show(false);
  }

  disconnectedCallback() {
    this.#dark.removeEventListener('change', this.#restyle);
    this.#endCountdown();
    const run = this.#run;
    if (this.#service?.hasThreads) {
      // The run goes on, and the conversation is loaded again when the element is put back.
      this.#run = undefined;
      this.#loaded = undefined;
    }
    run?.abort.abort();
  }

  attributeChangedCallback(name, before, after) {
    if (before === after || !this.isConnected) return;
    if (name === 'open') after === null ? this.close() : this.open();
    else if (['token', 'api', 'store'].includes(name)) this.#begin();
    else if (['greeting', 'suggestions'].includes(name)) this.#drawWelcome();
    else this.#applyStyle();
  }

  /** Opens the chat. */
  open() {
    this.#show(true);
  }

  #show(takesFocus) {
    const { root, panel, launcher, input } = this.#ui;
    if (this.#isOpen || root.hidden) return;
    this.#isOpen = true;
    panel.hidden = false;
    root.classList.add('open');
    attributes(launcher, { 'aria-expanded': true, 'aria-label': TEXT.close }).replaceChildren(icon('close'));
    if (takesFocus) input.focus();
    this.#remembered = true;
    this.#scroll();
    this.#emit('open', { open: true });
    this.#load();
  }

  /** Closes the chat; an answer in progress continues. */
  close() {
    const { root, panel, launcher } = this.#ui;
    if (!this.#isOpen) return;
    this.#isOpen = false;
    const hasFocus = panel.contains(this.#active);
    panel.hidden = true;
    root.classList.remove('open');
    attributes(launcher, { 'aria-expanded': false, 'aria-label': TEXT.open }).replaceChildren(icon('chat'));
    if (hasFocus) launcher.focus();
    this.#remembered = false;
    this.#emit('open', { open: false });
  }

  toggle() {
    if (this.#isOpen) this.close();
    else this.open();
  }

  /** Sends a message, as if the visitor had written it. */
  async send(text) {
    const message = String(text ?? '').trim();
    const { input } = this.#ui;
    if (message === '' || this.#run || this.#timer || this.#ui.root.hidden) return;
    this.#show(false);
    await this.#load();
    if (this.#run || this.#ui.root.hidden) return;
    this.#notice();
    if (input.value.trim() === message) input.value = '';
    this.#fit();
    // The focus does not go with the suggestion that had it.
    if (this.#ui.log.contains(this.#active)) this.#ui.log.focus({ preventScroll: true });
    this.#ui.log.querySelector('.chips')?.remove();
    const node = this.#add('user', message);
    this.#scroll(true);
    this.#emit('message', { role: 'user', length: message.length });
    this.#history.push({ role: 'user', content: message });
    // A message in place of a decision withdraws the question.
    const resume = this.#questions?.text ? this.#questions.withdraw() : undefined;
    await this.#ask({ message, resume }, () => {
      // The server has refused the message: it is the visitor's to send again.
      node.remove();
      this.#history.pop();
      if (input.value === '') input.value = message;
      this.#fit();
      this.#drawWelcome();
    });
  }

  /** Begins a new conversation, and deletes the one before. */
  reset() {
    const { memory } = this.#service ?? {};
    if (!memory) return;
    this.#run?.abort.abort();
    if (memory.thread) this.#service.send(`DELETE api/threads/${encodeURIComponent(memory.thread)}`).catch(() => {});
    memory.thread = undefined;
    memory.save();
    // Another promise: the thread of a load in progress is not shown.
    this.#loaded &&= this.#loaded.then();
    this.#clear();
    this.#ui.input.focus();
  }

  /** Removes the chat from the page. What the browser keeps stays. */
  destroy() {
    this.remove();
  }

  /** The element of the widget that has the focus. */
  get #active() {
    return this.#ui.root.getRootNode().activeElement;
  }

  get #remembered() {
    try {
      return sessionStorage.getItem('agent-chat:open') !== null && this.#store !== 'off';
    } catch {
      return false;
    }
  }

  set #remembered(isOpen) {
    try {
      if (isOpen && this.#store !== 'off') sessionStorage.setItem('agent-chat:open', '1');
      else sessionStorage.removeItem('agent-chat:open');
    } catch {
      // The browser keeps nothing for this page.
    }
  }

  get #store() {
    return this.getAttribute('store') ?? 'local';
  }

  #emit(name, detail) {
    this.dispatchEvent(new CustomEvent(`agent-${name}`, { detail, bubbles: true, composed: true }));
  }

  /** Begins with the credentials of the attributes. */
  #begin() {
    this.#run?.abort.abort();
    const token = this.getAttribute('token');
    const base = this.getAttribute('api') ?? new URL('../../../', import.meta.url);
    this.#service = undefined;
    this.#ui.root.hidden = !token;
    if (token) this.#service = new Service(new URL(base, document.baseURI), token, this.#store);
    this.#clear();
    this.#loaded = undefined;
    if (this.#isOpen) this.#load();
  }

  #applyStyle() {
    const { root, title, panel } = this.#ui;
    const theme = this.getAttribute('theme');
    // A page that does not say that it has a dark form is light, whatever the visitor prefers.
    const meta = document.querySelector('meta[name="color-scheme"]')?.content ?? '';
    const page = getComputedStyle(document.documentElement).colorScheme + meta;
    const follows = page.includes('dark') && (this.#dark.matches || !page.includes('light'));
    root.classList.toggle('dark', theme === 'dark' || (theme !== 'light' && follows));
    root.classList.toggle('start', this.getAttribute('position') === 'start');
    root.dir = this.parentElement ? getComputedStyle(this.parentElement).direction : 'ltr';
    root.lang = this.getAttribute('lang') ?? 'en';
    title.textContent = this.getAttribute('title') || TEXT.title;
    panel.lang = root.lang;
  }

  #clear() {
    this.#endCountdown();
    this.#run = undefined;
    this.#questions?.destroy();
    this.#questions = undefined;
    this.#history = [];
    this.#ui.log.replaceChildren();
    this.#drawState();
    this.#drawWelcome();
  }

  /** Draws what stands before the first message: the greeting, which stays, and the suggestions. */
  #drawWelcome() {
    const { log } = this.#ui;
    if (log.querySelector('.message:not(.greeting)')) return;
    log.replaceChildren();
    const greeting = this.getAttribute('greeting');
    if (greeting) this.#add('agent greeting', greeting);
    const words = (this.getAttribute('suggestions') ?? '').split('|').map((word) => word.trim()).filter(Boolean);
    const chips = words.slice(0, MAX_SUGGESTIONS).map((word) => button('chip', '', [word], () => this.send(word)));
    if (chips.length > 0) log.append(element('div', 'chips', chips));
  }

  /** Adds a message to the conversation and returns its element. */
  #add(who, text) {
    const body = element('div', 'text');
    body.dir = 'auto';
    const node = element('div', `message ${who}`, [element('span', 'only-read', [who === 'user' ? TEXT.you : TEXT.agent]), body]);
    node.setAttribute('part', 'message');
    if (who === 'user') body.textContent = text;
    else if (text) new MarkdownView(body).update(text, true);
    this.#ui.log.append(node);
    return node;
  }

  /** Loads the thread, once. What comes when another conversation has begun is dropped. */
  #load() {
    const service = this.#service;
    if (this.#loaded || !service) return this.#loaded;
    const loaded = (this.#loaded = service.loadThread().then(
      (thread) => this.#loaded === loaded && this.#drawThread(thread),
      async (error) => {
        const reason = await service.explain(error);
        if (this.#loaded !== loaded) return;
        this.#loaded = undefined;
        this.#refuse(reason);
      },
    ));
    return loaded;
  }

  #drawThread(thread) {
    const messages = (thread?.nodes ?? []).filter(({ message, status }) => message.content && status !== 'deleted');
    if (messages.length === 0 && !thread?.activeRunId) return;
    this.#clear();
    if (messages.length > 0) this.#ui.log.querySelector('.chips')?.remove();
    for (const { message, status } of messages) {
      const { role, content } = message;
      const text = typeof content === 'string' ? content : content.map((part) => part.text ?? '').join('');
      const node = this.#add(role === 'user' ? 'user' : 'agent', text);
      if (status === 'cancelled') node.append(element('div', 'end', [TEXT.stopped]));
    }
    this.#scroll(true);
    if (thread.activeRunId) this.#follow({ id: thread.activeRunId, isBegun: true });
    else if (thread.questions?.length) this.#drawQuestions(thread);
    else if (messages.at(-1)?.message.role === 'user') this.#notice(TEXT.failed, true);
  }

  /** Draws the calls that wait for the visitor. */
  #drawQuestions({ Questions, questions }) {
    this.#questions = new Questions(questions, (resume) => {
      // The focus does not go with the button that had it.
      if (this.#ui.log.contains(this.#active)) this.#ui.log.focus({ preventScroll: true });
      this.#notice();
      this.#ask({ messages: [], resume });
    });
    this.#ui.log.append(...this.#questions.nodes);
    this.#ui.status.textContent = TEXT.asks(this.#questions.text);
    this.#scroll();
  }

  /** Loads the thread again, as another page may have changed it. */
  #reload() {
    this.#loaded = undefined;
    return this.#load();
  }

  #context() {
    const mode = this.getAttribute('page-context') ?? 'url';
    if (mode === 'json') return this.pageContext;
    // Queries and fragments may tell who the visitor is.
    return mode === 'url' ? { url: location.origin + location.pathname, title: document.title } : undefined;
  }

  /** Asks for an answer; `onRefused` is called if the server does not take the request. */
  #ask(fields, onRefused) {
    const { memory, hasThreads } = this.#service;
    const id = randomText();
    const body = { runId: id, pageContext: this.#context() };
    if (hasThreads) {
      memory.thread ??= randomText();
      memory.save();
      Object.assign(body, fields, { threadId: memory.thread, onDisconnect: 'continue' });
    }
    if (!hasThreads || !this.#service.isKept) Object.assign(body, { message: undefined, messages: this.#history });
    return this.#follow({ id, body, onRefused });
  }

  /** Reads a run: its answer, until the end, over as many connections as that takes. */
  async #follow({ id, body, isBegun = false, onRefused }) {
    const service = this.#service;
    const run = (this.#run = { id, abort: new AbortController(), isBegun });
    const answer = new AnswerView(this.#add('agent', ''), () => this.#scroll());
    const events = (count) => (signal) =>
      service.send(`GET api/runs/${encodeURIComponent(id)}/events${count ? `?after=${count - 1}` : ''}`, undefined, signal);
    // A request whose response was lost may have started a run: the same id tells.
    const ask = (signal) =>
      service.send('POST api/agent/chat', body, signal).catch((error) => {
        if (error.code !== 'CONFLICT') throw error;
        return events(0)(signal);
      });
    const options = {
      signal: run.abort.signal,
      maxAttempts: MAX_ATTEMPTS,
      attach: (count) => (service.hasThreads && !run.isStopped ? (count || isBegun ? events(count) : ask) : undefined),
      onLost: (seconds) => this.#notice(seconds ? TEXT.busy(seconds) : TEXT.lost),
    };
    const isCurrent = () => this.#run === run;
    this.#drawState(TEXT.answering);
    this.#emit('run', { status: 'started' });
    this.#scroll(true);
    try {
      for await (const batch of readRun(isBegun ? events(0) : ask, options)) {
        if (!run.isBegun || !this.#ui.notice.hidden) this.#notice();
        run.isBegun = true;
        answer.add(batch);
      }
    } catch (error) {
      if (!isCurrent()) return;
      if (error.isAborted || run.isStopped) answer.status = 'cancelled';
      else if (run.isBegun) answer.error = error;
      else {
        answer.remove();
        onRefused?.();
        this.#end(run, 'refused');
        if (body?.resume) return this.#refuseDecision(error);
        return this.#refuse(await service.explain(error));
      }
    }
    if (!isCurrent()) return;
    answer.finish();
    if (answer.text && !answer.error) this.#history.push({ role: 'assistant', content: answer.text });
    this.#end(run, answer.status);
    if (answer.error) return this.#refuse(answer.error, true);
    if (answer.text || answer.status !== 'waiting') this.#emit('message', { role: 'assistant', length: answer.text.length });
    if (answer.status === 'waiting') await this.#reload();
    else if (run.isBegun) this.#loaded = service.checkThread();
  }

  /** Shows the conversation as it is, and why a decision was not taken. */
  async #refuseDecision(error) {
    if (error.code === 'THREAD_BUSY') return this.#refuse(error);
    await this.#reload();
    if (!LATE.has(error.status)) return this.#refuse(error);
    this.#emit('error', { code: error.code, status: error.status });
    if (!this.#run) this.#notice(TEXT.late);
  }

  #end(run, status) {
    this.#run = undefined;
    this.#notice();
    this.#drawState(status === 'finished' ? TEXT.complete : status === 'cancelled' ? TEXT.stopped : '');
    this.#emit('run', { status });
  }

  async #stop() {
    const run = this.#run;
    run.isStopped = true;
    if (this.#service.hasThreads) {
      try {
        await this.#service.send(`POST api/runs/${encodeURIComponent(run.id)}/cancel`);
        return;
      } catch {
        // It has not started, or cannot be reached.
      }
    }
    run.abort.abort();
  }

  /** Makes the last answer again. */
  async #retry() {
    const service = this.#service;
    if (this.#run || !service) return;
    this.#notice();
    const loaded = (this.#loaded = Promise.resolve());
    // What was said before the answer failed is replaced.
    const removeAnswer = () => {
      while (this.#ui.log.lastChild?.matches('.agent:not(.greeting)')) this.#ui.log.lastChild.remove();
    };
    try {
      const thread = await service.loadThread();
      if (this.#loaded !== loaded) return;
      if (!thread && !this.#run && this.#history.length > 0) {
        removeAnswer();
        return void (await this.#ask({}));
      }
      this.#drawThread(thread);
      const last = thread?.nodes?.findLast(({ message }) => message.role === 'user');
      if (!last || this.#run || this.#questions) return;
      this.#notice();
      removeAnswer();
      await this.#ask({ parentId: last.id });
    } catch (error) {
      if (this.#loaded === loaded) this.#refuse(error);
    }
  }

  /** Shows why there is no answer. */
  #refuse(error, canRetry = false) {
    const { code, status, retryAfter, message } = error;
    this.#emit('error', { code, status });
    if (status === 401 || status === 403) {
      this.close();
      this.#ui.root.hidden = true;
      console.error(`agent-chat: ${message} (${status} ${code})`);
    } else if (code === 'THREAD_BUSY') {
      // Another page of the visitor has asked: its answer is shown here too.
      this.#reload();
    } else if (status === 429 || (retryAfter && !canRetry)) this.#countDown(status === 503 ? Math.min(retryAfter, MAX_UNAVAILABLE_S) : retryAfter ?? 10);
    else this.#notice(code === 'NETWORK' ? TEXT.offline : TEXT.failed, canRetry);
  }

  #countDown(seconds) {
    const end = Date.now() + seconds * 1000;
    clearInterval(this.#timer);
    this.#ui.status.textContent = TEXT.wait(seconds);
    const tick = () => {
      const left = Math.ceil((end - Date.now()) / 1000);
      // A countdown is read out once.
      if (left > 0) return this.#notice(TEXT.wait(left), false, false);
      this.#endCountdown();
      return this.#drawState();
    };
    this.#timer = setInterval(tick, 1000);
    tick();
    this.#drawState();
  }

  #endCountdown() {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#notice();
  }

  #notice(text = '', canRetry = false, isSaid = text !== '') {
    const { notice, noticeText, noticeButton, status } = this.#ui;
    if (isSaid) status.textContent = text;
    notice.hidden = text === '';
    noticeText.textContent = text;
    noticeButton.hidden = !canRetry;
    this.#scroll();
  }

  #drawState(status) {
    const { send, log } = this.#ui;
    const isRunning = this.#run !== undefined;
    send.classList.toggle('stop', isRunning);
    attributes(send, { 'aria-label': isRunning ? TEXT.stop : TEXT.send }).replaceChildren(icon(isRunning ? 'stop' : 'send'));
    log.setAttribute('aria-busy', isRunning);
    if (status) this.#ui.status.textContent = status;
    this.#fit();
  }

  /** Fits the field to its text. */
  #fit() {
    const { input, send } = this.#ui;
    input.style.height = '0';
    input.style.height = `${Math.max(44, Math.min(input.scrollHeight, 144))}px`;
    send.disabled = !this.#run && (input.value.trim() === '' || this.#timer !== undefined);
  }

  /** Shows the end of the conversation, if it was shown before. */
  #scroll(always = false) {
    const { log } = this.#ui;
    if (always) this.#follows = true;
    if (this.#follows) log.scrollTop = log.scrollHeight;
  }
}

/** An answer that is drawn once a frame, however many events arrive. */
class AnswerView {
  #node;
  #body;
  #view;
  #onDraw;
  #isScheduled = false;
  #parts = 0;
  text = '';
  status = 'finished';
  error;

  constructor(node, onDraw) {
    this.#node = node;
    this.#body = node.lastChild;
    this.#onDraw = onDraw;
    this.#body.append(element('div', 'waiting', [element('i'), element('i'), element('i')]));
  }

  add(events) {
    for (const { type, delta, outcome, code, message } of events) {
      if (type === 'TEXT_MESSAGE_CONTENT') this.text += delta;
      else if (type === 'TEXT_MESSAGE_START' && this.#parts++ > 0) this.text += '\n\n';
      else if (type === 'RUN_FINISHED' && outcome?.type === 'cancelled') this.status = 'cancelled';
      else if (type === 'RUN_FINISHED' && outcome?.type === 'interrupt') this.status = 'waiting';
      else if (type === 'RUN_ERROR') this.error = Object.assign(new Error(message), { code });
    }
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    const draw = () => this.#draw(false);
    if (document.hidden) setTimeout(draw, 100);
    else requestAnimationFrame(draw);
  }

  #draw(isComplete) {
    this.#isScheduled = false;
    if (this.text && !this.#view) {
      this.#body.replaceChildren();
      this.#view = new MarkdownView(this.#body);
    }
    this.#view?.update(this.text, isComplete);
    this.#onDraw();
  }

  finish() {
    if (this.error) this.status = 'failed';
    this.#draw(true);
    if (!this.text) this.#body.replaceChildren();
    if (this.status === 'cancelled') this.#node.append(element('div', 'end', [TEXT.stopped]));
    if (!this.text && ['failed', 'waiting'].includes(this.status)) this.remove();
    this.#onDraw();
  }

  remove() {
    this.#node.remove();
  }
}

// A page may have the script twice.
if (!customElements.get('agent-chat')) customElements.define('agent-chat', AgentChat);

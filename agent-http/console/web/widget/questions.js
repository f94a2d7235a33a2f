/** Tool calls that wait for the visitor's decision. */

import { element } from '../lib/markdown.js';

const TEXT = {
  approve: 'Approve', deny: 'Deny', approved: 'Approved', denied: 'Denied', withdrawn: 'Withdrawn',
  expired: 'The time for the decision is over.',
};
/** Longest time of a timer, in milliseconds. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** Returns a value as text: a text as it is, others as JSON. */
const shown = (value) => (typeof value === 'string' ? value : JSON.stringify(value, null, 2));

/** Returns the arguments as a list of names and values, if there are any. */
function argumentList(values) {
  const pairs = Object.entries(values ?? {}).flatMap(([name, value]) => {
    const text = element('dd', '', [shown(value)]);
    text.dir = 'auto';
    return [element('dt', '', [name]), text];
  });
  return pairs.length > 0 ? [element('dl', '', pairs)] : [];
}

/** The open questions of one run, which are answered together. */
export class Questions {
  #open = new Map();
  #resume = [];
  #timers = [];
  #onDecided;
  /** A card for each question. */
  nodes;

  /**
   * @param {{id: string, tool: string, message?: string, arguments: unknown, expiresAt: string}[]} approvals
   * @param {(resume: unknown[]) => void} onDecided Gets the decisions, once there is one about each call.
   */
  constructor(approvals, onDecided) {
    this.#onDecided = onDecided;
    this.nodes = approvals.map((approval) => this.#card(approval));
  }

  /** The first question, in words; empty if none is open. */
  get text() {
    return this.#open.values().next().value?.text ?? '';
  }

  /** Withdraws the questions, and returns the decisions that say so. */
  withdraw() {
    for (const [id, { end }] of [...this.#open]) {
      end(TEXT.withdrawn);
      this.#resume.push({ interruptId: id, status: 'cancelled' });
    }
    return this.#resume;
  }

  /** Forgets the questions. */
  destroy() {
    this.#open.clear();
    for (const timer of this.#timers) clearTimeout(timer);
  }

  #card({ id, tool, message, arguments: values, expiresAt }) {
    const choices = element('div', 'choices');
    const card = element('div', 'question', [
      element('p', 'ask', [message ?? tool]), element('p', 'call', [element('code', 'md-code', [tool])]), ...argumentList(values), choices]);
    card.setAttribute('role', 'group');
    card.setAttribute('aria-label', message ?? tool);
    card.setAttribute('part', 'message');
    const end = (words) => {
      this.#open.delete(id);
      choices.replaceChildren(element('span', 'end', [words]));
    };
    const choice = (name, words, ended, payload) => {
      const button = element('button', name, [words]);
      button.type = 'button';
      button.addEventListener('click', () => {
        this.#open.delete(id);
        this.#resume.push({ interruptId: id, status: 'resolved', payload });
        // Several calls are decided one after the other. The focus leaves the button before the button goes.
        const next = this.#open.values().next().value;
        if (next) next.first.focus();
        else this.#onDecided(this.#resume);
        end(ended);
      });
      return button;
    };
    const first = choice('yes', TEXT.approve, TEXT.approved, { approved: true });
    choices.append(first, choice('no', TEXT.deny, TEXT.denied, { approved: false }));
    this.#open.set(id, { end, first, text: message ?? tool });
    this.#expire(id, Date.parse(expiresAt), end);
    return card;
  }

  /** Ends a question when its time is over. */
  #expire(id, at, end) {
    const left = at - Date.now();
    if (left > 0) {
      this.#timers.push(setTimeout(() => this.#expire(id, at, end), Math.min(left, MAX_TIMER_MS)));
    } else if (this.#open.has(id)) {
      end(TEXT.expired);
      if (this.#open.size === 0 && this.#resume.length > 0) this.#onDecided(this.#resume);
    }
  }
}

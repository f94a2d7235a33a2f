/** The Context tab: what the page around the chat contributes, and how the model reads it. */

import { html } from '../vendor/ui.js';
import { context, contextError } from '../lib/chat.js';
import { Code, Facts } from '../lib/ui.js';

export function ContextTab({ preview }) {
  return html`
    <p class="muted">These go with the next message, as the page of a product would send them.</p>
    <${JsonEditor} name="page" label="pageContext" hint="any JSON: the page around the chat" example='{"url": "/plants/basil", "title": "Basil"}' />
    <${JsonEditor} name="blocks" label="blocksContext" hint="an array of any JSON: related objects" example='[{"kind": "order", "id": 7}]' />
    <div class="field-row">
      <${Field} name="timezone" label="Time zone" />
      <${Field} name="todoListId" label="Todo list" />
    </div>
    <${Field} name="toolChoice" label=${html`Tool choice <span class="muted">none, required, or the name of a tool</span>`} hint="auto" />
    ${preview && html`
      <h2 class="label"><code>combinedContext</code>, as the model reads it</h2>
      <${Code} text=${preview.combinedContext || 'nothing'} label="combinedContext" wrap />
      <h2 class="label"><code>executionContext</code></h2>
      <${Facts} facts=${Object.entries(preview.executionContext ?? {}).map(([name, value]) => [name, String(value)])} />`}`;
}

function JsonEditor({ name, label, hint, example }) {
  const error = contextError(name);
  const { value } = context[name];
  return html`<div class="field">
    <label for=${`context-${name}`}><code>${label}</code> <span class="muted">${hint}</span></label>
    <textarea id=${`context-${name}`} class="code-input" rows="4" spellcheck="false" value=${value} placeholder=${example}
      aria-invalid=${Boolean(error)} aria-describedby=${error ? `context-${name}-error` : undefined}
      onInput=${(event) => (context[name].value = event.target.value)}></textarea>
    ${error && html`<p class="field-error" id=${`context-${name}-error`}>It ${error}, and is not sent.</p>`}
  </div>`;
}

function Field({ name, label, hint }) {
  return html`<div class="field">
    <label for=${`context-${name}`}>${label}</label>
    <input id=${`context-${name}`} value=${context[name].value} placeholder=${hint} spellcheck="false" autocomplete="off"
      onInput=${(event) => (context[name].value = event.target.value)} />
  </div>`;
}

/** The Context tab: what the page around the chat contributes, and how the model reads it. */

import { html } from '../vendor/ui.js';
import { context, contextError } from '../lib/chat.js';
import { Field, controlOf } from '../lib/fields.js';
import { Code, Facts } from '../lib/ui.js';

export function ContextTab({ preview }) {
  return html`
    <p class="muted">These go with the next message, as the page of a product would send them.</p>
    <${JsonEditor} name="page" label="pageContext" hint="any JSON: the page around the chat" example='{"url": "/plants/basil", "title": "Basil"}' />
    <${JsonEditor} name="blocks" label="blocksContext" hint="an array of any JSON: related objects" example='[{"kind": "order", "id": 7}]' />
    <div class="field-row">
      <${TextInput} name="timezone" label="Time zone" />
      <${TextInput} name="todoListId" label="Todo list" />
    </div>
    <${TextInput} name="toolChoice" label=${html`Tool choice <span class="muted">none, required, or the name of a tool</span>`} hint="auto" />
    ${preview && html`
      <h2 class="label"><code>combinedContext</code>, as the model reads it</h2>
      <${Code} text=${preview.combinedContext || 'nothing'} label="combinedContext" wrap />
      <h2 class="label"><code>executionContext</code></h2>
      <${Facts} facts=${Object.entries(preview.executionContext ?? {}).map(([name, value]) => [name, String(value)])} />`}`;
}

/** Attributes of the control of a part of the context. */
const input = (name, error) => ({ ...controlOf(`context-${name}`, '', error), value: context[name].value, spellcheck: false, onInput: (event) => (context[name].value = event.target.value) });

function JsonEditor({ name, label, hint, example }) {
  const error = contextError(name);
  return html`<${Field} id=${`context-${name}`} label=${html`<code>${label}</code> <span class="muted">${hint}</span>`} error=${error && `It ${error}, and is not sent.`}>
    <textarea ...${input(name, error)} class="code-input" rows="4" placeholder=${example}></textarea><//>`;
}

const TextInput = ({ name, label, hint }) => html`<${Field} id=${`context-${name}`} label=${label}><input ...${input(name)} placeholder=${hint} autocomplete="off" /><//>`;

/** The backends of a role: containers below it, and the agent server that it names itself. */

import { html, useState } from '../vendor/ui.js';
import { Choice, Count, Secret, Text, Words } from '../lib/fields.js';
import { getAt, listAt } from '../lib/role.js';

const THINKING = [[undefined, 'the model’s default'], [true, 'on'], [false, 'off']];
const providers = (...names) => [[undefined, 'not set'], ...names.map((name) => [name, name])];
const EMBEDDED = providers('anthropic', 'auto', 'local', 'ollama', 'openai', 'openai-responses');
const SERVER = providers('anthropic', 'ollama', 'openai');
const TEMPERATURES = [[undefined, 'the model’s default'], ...[0, 0.2, 0.4, 0.6, 0.8, 1, 1.5, 2].map((value) => [value, String(value)])];
const AUTH = [[undefined, 'not set'], ['none', 'none'], ['basic', 'user and password'], ['header', 'a header'], ['jwt', 'a signed token (JWT)']];

/** Containers that are backends, by name, with what they are. */
const KINDS = {
  EmbeddedAI: { words: 'a model that the application calls', view: Embedded },
  AgentServer: { words: 'an agent runtime', view: Server },
  WorkflowConnector: { words: 'a workflow’s webhook', view: Workflow },
  SubscriptionConnector: { words: 'a coding subscription of the user', view: Subscription },
};

const SERVER_FIELDS = ['agentServerUrl', 'agentServerProvider', 'agentServerModel', 'agentServerEnableThinking', 'agentServerTools', 'agentServerLocalUrl', 'agentServerApiKey'];

export function Backends({ form }) {
  const children = listAt(form.value, 'children');
  const content = form.value.content ?? {};
  const [kind, setKind] = useState('EmbeddedAI');
  const remove = (place) => {
    const rest = children.filter((_, other) => other !== place);
    form.set('children', rest.length > 0 ? rest : undefined);
  };
  const add = () => form.set(`children[${children.length}]`, { name: kind, content: {} });
  return html`<p class="muted small">Five rules select the backend, which the tab Backend shows. A key is sent to the address for which it was saved, and deleted with it.</p>
    ${children.map((child, place) => html`<fieldset class="backend" key=${`${place}-${child?.name}`}>
      <legend><code>${child?.name}</code> <span class="meta">${KINDS[child?.name]?.words ?? ''}</span></legend>
      ${Object.hasOwn(KINDS, child?.name) ? html`<${KINDS[child.name].view} form=${form} path=${`children[${place}].content`} savedPath=${savedPath(form.saved, child.name)} />`
        : html`<p class="muted small">It is edited in the JSON view.</p>`}
      <button type="button" class="button quiet small danger-text" onClick=${() => remove(place)}>Remove ${child?.name}</button>
    </fieldset>`)}
    ${SERVER_FIELDS.some((name) => content[name] !== undefined) && html`<fieldset class="backend"><legend>Agent server of the role itself</legend>
      <${Server} form=${form} path="content" savedPath="content" /></fieldset>`}
    <div class="row"><label><span class="visually-hidden">Kind of backend</span><select value=${kind} onChange=${({ target }) => setKind(target.value)}>
      ${Object.entries(KINDS).map(([name, { words }]) => html`<option key=${name} value=${name}>${name}: ${words}</option>`)}</select></label>
      <button type="button" class="button small" onClick=${add}>Add</button></div>`;
}

/** Place of a container's content in the saved role, where its secrets are known by its name. */
function savedPath(saved, name) {
  const place = listAt(saved, 'children').findIndex((child) => child?.name === name);
  return place < 0 ? 'absent' : `children[${place}].content`;
}

/** Says that a key is not kept for another address. */
function keyHint(form, path, savedPath, address) {
  const [now, before] = [getAt(form.value, `${path}.${address}`), getAt(form.saved, `${savedPath}.${address}`)];
  return savedPath !== 'absent' && (now ?? '') !== (before ?? '') ? 'The address has changed: a saved key is deleted, unless it is given again.' : undefined;
}

function Embedded({ form, path, savedPath }) {
  const at = (name) => `${path}.${name}`;
  return html`<div class="field-row">
      <${Choice} form=${form} path=${at('provider')} label="Provider" options=${EMBEDDED} />
      <${Text} form=${form} path=${at('model')} label="Model" />
    </div>
    <${Text} form=${form} path=${at('baseUrl')} label="Address" placeholder="https://api.openai.com/v1" />
    <${Secret} form=${form} path=${at('apiKey')} savedPath=${`${savedPath}.apiKey`} label="API key" hint=${keyHint(form, path, savedPath, 'baseUrl')} />
    <${Reasoning} form=${form} path=${path} />
    <${Parameters} form=${form} path=${path} />`;
}

function Parameters({ form, path }) {
  return html`<div class="field-row">
    <${Choice} form=${form} path=${`${path}.parameters.temperature`} label="Temperature" options=${TEMPERATURES} />
    <${Count} form=${form} path=${`${path}.parameters.maxOutputTokens`} label="Longest answer" hint="In tokens. The JSON view has the other parameters." />
  </div>`;
}

function Reasoning({ form, path }) {
  return html`<div class="field-row">
    <${Choice} form=${form} path=${`${path}.enableThinking`} label="Reasoning" options=${THINKING} />
    <${Text} form=${form} path=${`${path}.reasoningEffort`} label="Effort" hint="In the provider’s words, such as low." />
  </div>`;
}

function Server({ form, path, savedPath }) {
  const at = (name) => `${path}.agentServer${name}`;
  return html`<${Text} form=${form} path=${at('Url')} label="Address of the runtime" />
    <div class="field-row">
      <${Choice} form=${form} path=${at('Provider')} label="Provider" options=${SERVER} />
      <${Text} form=${form} path=${at('Model')} label="Model" />
      <${Text} form=${form} path=${at('LocalUrl')} label="Address of a local model" />
      <${Choice} form=${form} path=${at('EnableThinking')} label="Reasoning" options=${THINKING} />
    </div>
    <${Secret} form=${form} path=${at('ApiKey')} savedPath=${`${savedPath}.agentServerApiKey`} label="API key" hint=${keyHint(form, path, savedPath, 'agentServerUrl')} />
    <${Parameters} form=${form} path=${path} />
    <${Words} form=${form} path=${at('Tools')} label="Only these tools" hint="Names, with commas between them. Absent: all of the agent’s." />`;
}

function Workflow({ form, path, savedPath }) {
  const auth = getAt(form.value, `${path}.auth.type`);
  const secret = (name, label) => html`<${Secret} form=${form} path=${`${path}.auth.${name}`} savedPath=${`${savedPath}.auth.${name}`} label=${label} hint=${keyHint(form, path, savedPath, 'webhookUrl')} />`;
  // Each kind has other fields, so that a change of the kind begins anew.
  const set = (at, type) => form.set(at.replace(/\.type$/, ''), type && { type });
  return html`<${Text} form=${form} path=${`${path}.webhookUrl`} label="Address of the webhook" />
    <${Choice} form=${{ ...form, set }} path=${`${path}.auth.type`} label="Authentication" options=${AUTH} />
    ${auth === 'basic' && html`<${Text} form=${form} path=${`${path}.auth.user`} label="User" isKept />${secret('password', 'Password')}`}
    ${auth === 'header' && html`<${Text} form=${form} path=${`${path}.auth.name`} label="Name of the header" isKept />${secret('value', 'Value of the header')}`}
    ${auth === 'jwt' && secret('secret', 'Secret that signs')}`;
}

function Subscription({ form, path }) {
  return html`<${Text} form=${form} path=${`${path}.model`} label="Model" />
    <${Text} form=${form} path=${`${path}.instructions`} label="Instructions" rows=${2} hint="For a vendor that accepts only its own; the system prompt follows." />
    <${Reasoning} form=${form} path=${path} />`;
}

/** The Tools tab: what the agent may use here and why, what its role names and it may not use, and a form to try a tool; for its owner, the tools that the role defines. */

import { html } from '../vendor/ui.js';
import { agentId } from '../lib/chat.js';
import { call, session } from '../lib/store.js';
import { Code, useLoad } from '../lib/ui.js';
import { OwnTools, definesTools } from './own-tools.js';
import { TryTool } from './try.js';

export function ToolsTab({ preview }) {
  const id = agentId.value;
  const { data } = useLoad(() => call('GET /api/agents/{id}', { params: { id } }), id);
  const content = data?.data.content ?? {};
  const isOwner = data?.data.ownerId === session.value.userId;
  const tools = preview.tools ?? [];
  const names = new Set(tools.map(({ name }) => name));
  const denied = [...new Set([...(content.mcpPreset ?? []), ...(content.tools ?? [])])].filter((name) => !names.has(name));
  return html`
    <p class="muted">${tools.length === 0 ? 'The agent has no tools here.' : 'Allowed for you with this agent, in the order of the prompt.'}</p>
    <ul class="plain">${tools.map((tool) => html`<${Tool} key=${`${id} ${tool.name}`} tool=${tool} why=${reason(tool.name, content)} isOwner=${isOwner} />`)}</ul>
    ${denied.length > 0 && html`<h2 class="label">Not allowed here</h2>
      <ul class="plain">${denied.map((name) => html`<li key=${name} class="denied"><code>${name}</code> <span class="muted">${denial(name, content)}</span></li>`)}</ul>`}
    ${isOwner && definesTools(content) && html`<${OwnTools} id=${id} servers=${content.toolServers} />`}`;
}

/** The place in the role that allows a tool. */
function reason(name, { mcpPreset, tools, widgetTools, httpTools = [], openApi = [], toolServers = [] }) {
  const isOwn = httpTools.some((tool) => tool.name === name) || [...openApi, ...toolServers].some(({ id }) => name.startsWith(`${id}_`));
  const named = isOwn ? 'defined by the role' : tools?.includes(name) ? 'named in tools' : mcpPreset ? 'in mcpPreset' : 'in the default preset';
  return widgetTools?.includes(name) ? `${named}; visitors of widgets too` : named;
}

/** The place in the role, or in the request, that takes a tool away. */
function denial(name, { agentServerTools }) {
  if (agentServerTools && !agentServerTools.includes(name)) return 'cut by agentServerTools';
  return 'needs something that this request does not have, such as a todo list, or a setting';
}

function Tool({ tool, why, isOwner }) {
  const { name, description, inputSchema } = tool;
  const fields = Object.entries(inputSchema?.properties ?? {});
  return html`<li><details class="fold">
    <summary><span class="tool-name">${name}</span><span class="meta">${why}</span></summary>
    <div class="fold-body">
      <p>${description}</p>
      ${fields.length > 0 && html`<dl class="facts">${fields.map(([field, schema]) => html`<div key=${field}>
        <dt><code>${field}</code>${inputSchema.required?.includes(field) && html`<span class="meta"> required</span>`}</dt>
        <dd>${[schema.type, schema.description].flat().filter(Boolean).join(' · ')}</dd></div>`)}</dl>`}
      <details><summary class="meta">Schema</summary><${Code} text=${JSON.stringify(inputSchema, null, 2)} label=${`schema of ${name}`} /></details>
      <${TryTool} tool=${tool} isOwner=${isOwner} />
    </div>
  </details></li>`;
}

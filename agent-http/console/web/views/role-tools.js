/** The tools of a role: the preset, further tools, and those of a widget's visitors. */

import { html } from '../vendor/ui.js';
import { CATALOGUE } from '../lib/catalogue.js';
import { Notes } from '../lib/fields.js';
import { getAt, listAt } from '../lib/role.js';

const KNOWN = new Map(CATALOGUE.map((tool) => [tool.name, tool]));
const DEFAULT = CATALOGUE.filter(({ isDefault }) => isDefault).map(({ name }) => name);
/** Words of a workspace file, which the server stores as lists. */
const PRESETS = { base: DEFAULT, none: [] };

/** Returns a list with a name or without it; `undefined` for an empty one. */
function toggled(list, name, isIn) {
  const rest = list.filter((one) => one !== name);
  const chosen = isIn ? [...rest, name] : rest;
  return chosen.length > 0 ? chosen : undefined;
}

export function Tools({ form }) {
  const given = getAt(form.value, 'content.mcpPreset');
  const preset = Array.isArray(given) ? given : PRESETS[given] ?? DEFAULT;
  const isOwnList = given !== undefined && given !== null && given !== 'base';
  const tools = listAt(form.value, 'content.tools');
  const visitors = listAt(form.value, 'content.widgetTools');
  const names = [...new Set([...KNOWN.keys(), ...preset, ...tools, ...visitors])].filter((name) => typeof name === 'string');
  const change = (name, isIn) => {
    if (tools.includes(name) && !isIn) form.set('content.tools', toggled(tools, name, false));
    if (isOwnList && !KNOWN.get(name)?.mustBeListed && (isIn || preset.includes(name))) form.set('content.mcpPreset', toggled(preset, name, isIn) ?? []);
    else if (isIn) form.set('content.tools', toggled(tools, name, true));
  };
  return html`
    <fieldset class="field choice"><legend>Begins with</legend>
      <label class="check"><input type="radio" name="preset" checked=${!isOwnList} onChange=${() => form.set('content.mcpPreset', undefined)} /><span>the default tools</span></label>
      <label class="check"><input type="radio" name="preset" checked=${isOwnList} onChange=${() => form.set('content.mcpPreset', preset)} /><span>the tools that are marked here</span></label>
    </fieldset>
    <${Notes} form=${form} path="content.mcpPreset" /><${Notes} form=${form} path="content.tools" /><${Notes} form=${form} path="content.widgetTools" />
    <div class="picker tall" tabindex="0" role="group" aria-label="Tools of the role"><table class="md-table">
      <thead><tr><th scope="col">Tool</th><th scope="col">Agent</th><th scope="col">Visitors</th></tr></thead>
      <tbody>${names.map((name) => {
        const isFixed = !isOwnList && preset.includes(name) && !tools.includes(name);
        return html`<tr key=${name}>
          <th scope="row"><${Name} name=${name} /></th>
          <td><input type="checkbox" aria-label=${`${name} for the agent`} checked=${preset.includes(name) || tools.includes(name)} disabled=${isFixed} onChange=${({ target }) => change(name, target.checked)} /></td>
          <td><input type="checkbox" aria-label=${`${name} for visitors`} checked=${visitors.includes(name)} onChange=${({ target }) => form.set('content.widgetTools', toggled(visitors, name, target.checked))} /></td>
        </tr>`;
      })}</tbody></table></div>`;
}

/** A tool with what it does, and the hints about its effects. */
function Name({ name }) {
  const tool = KNOWN.get(name);
  if (!tool) return html`<code>${name}</code> <span class="meta">not a built-in tool</span>`;
  return html`<code>${name}</code> ${tool.hints.filter((hint) => hint !== 'idempotent').map((hint) => html`<span key=${hint} class=${`chip hint-${hint.replace(' ', '-')}`}>${hint}</span>`)}
    <p class="meta">${tool.description}</p>`;
}

/** The debug layer beside the chat: prompts, tools, and the events of runs. */

import { html, signal } from '../vendor/ui.js';
import { agentId, context, draft, inspected, live, path, previewRequest, promptVersion } from '../lib/chat.js';
import { call, has } from '../lib/store.js';
import { ErrorNote, Selection, Tabs, lazy, pending, useLoad, usePaused } from '../lib/ui.js';
import { PromptTab } from './prompt.js';

const TABS = [
  { id: 'prompt', name: 'Prompt', view: PromptTab },
  { id: 'context', name: 'Context', view: lazy(() => import('./context.js'), 'ContextTab') },
  { id: 'tools', name: 'Tools', view: lazy(() => import('./tools.js'), 'ToolsTab') },
  { id: 'events', name: 'Events', view: lazy(() => import('./events.js'), 'EventsTab') },
  { id: 'retrieval', name: 'Retrieval', view: lazy(() => import('./retrieval.js'), 'RetrievalTab'), feature: 'retrieval' },
];

/** Id of the chosen tab. */
export const debugTab = signal(TABS[0].id);

export const debugTabs = () => TABS.filter(({ feature }) => !feature || has(feature));

/** Asks for the preview of what would be sent now, whenever something changes on which it depends. */
function usePreview() {
  const isRunning = Boolean(live.value) && !live.value.isOver;
  const depends = JSON.stringify([
    agentId.value, draft.value, promptVersion.value, path.value.length, isRunning,
    context.page.value, context.blocks.value, context.todoListId.value, context.timezone.value, context.toolChoice.value,
  ]);
  const load = async (signal) => (agentId.value ? (await call('POST /api/svcchat/previewPrompt', { body: previewRequest(), signal })).data : undefined);
  return useLoad(load, usePaused(depends));
}

/** The chosen tab. `isBare` leaves out the row of tabs, and its panel, where the page has one already. */
export function Debug({ tab, onTab, isBare = false }) {
  const preview = usePreview();
  const tabs = debugTabs().map((of) => ({ ...of, count: of.id === 'tools' ? preview.data?.tools?.length : undefined }));
  const { view: View } = TABS.find(({ id }) => id === tab) ?? TABS[0];
  const needsPreview = tab !== 'events' && tab !== 'context';
  return html`<aside class="debug" aria-label="Debug layer">
    ${!isBare && html`<div class="debug-tabs"><${Tabs} label="Debug layer" tabs=${tabs} selected=${tab} onSelect=${onTab} panel="debug-panel" /></div>`}
    ${isBare && html`<h1 class="visually-hidden">Debug layer</h1>`}
    <div class="panel" id="debug-panel" role=${isBare ? 'region' : 'tabpanel'} aria-labelledby=${`tab-${tab}`} tabindex="0">
      ${tab !== 'events' && html`<${ErrorNote} ...${preview}><${Selection} rules=${preview.error?.problem?.selection?.rules} /><//>`}
      ${needsPreview && !preview.error && pending(preview)}
      ${(!needsPreview || preview.data) && html`<${View} preview=${preview.data} run=${inspected.value} />`}
    </div>
  </aside>`;
}

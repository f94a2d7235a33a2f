/** The selection of an agent's backend. */

import { html } from '../vendor/ui.js';

const REASONS = { noContainer: 'the role has no such container', fieldMissing: 'without', fieldBlank: 'blank' };

/** The rules by which a backend is selected, each with its outcome. */
export function Selection({ rules }) {
  if (!rules) return null;
  return html`<ol class="rules">
    ${rules.map(({ rule, matched, reason, field }) => html`<li key=${rule} class=${matched ? 'matched' : ''}>
      <code>${rule}</code> <span class="muted">${matched ? 'matched' : [REASONS[reason] ?? reason, field].filter(Boolean).join(' ')}</span>
    </li>`)}
  </ol>`;
}

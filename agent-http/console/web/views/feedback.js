/** The rating of an answer by its reader. */

import { html, useLayoutEffect, useRef, useState } from '../vendor/ui.js';
import { rate } from '../lib/chat.js';
import { ErrorNote, useAction } from '../lib/ui.js';

const UP = 'M5 7.5 7.6 2.3c.9 0 1.6.7 1.6 1.6V6h3.5c.9 0 1.5.8 1.3 1.7l-.9 4.3c-.2.7-.7 1.2-1.4 1.2H5m0-5.7H3c-.5 0-.9.4-.9.9v4c0 .5.4.9.9.9h2m0-5.8v5.8';

const NAMES = { up: 'Good answer', down: 'Bad answer' };

/** @param {{node: {id: string, feedback?: {rating: string, comment?: string, share?: boolean}}}} props The last stored message of the answer. */
export function Feedback({ node }) {
  const { feedback } = node;
  const [isOpen, setOpen] = useState(false);
  const { error, run } = useAction();
  const set = (value) => run(() => rate(node, value));
  const press = (rating) => () => {
    const isRated = feedback?.rating === rating;
    setOpen(!isRated && rating === 'down');
    set(isRated ? undefined : { rating, share: feedback?.share ?? false });
  };
  return html`<span class="feedback" role="group" aria-label="Rating">${['up', 'down'].map((rating) => html`<button type="button" key=${rating} class="icon rate" aria-label=${NAMES[rating]}
      aria-pressed=${feedback?.rating === rating} onClick=${press(rating)}><svg viewBox="0 0 16 16" width="15" height="15" aria-hidden="true"><path d=${UP} transform=${rating === 'down' ? 'rotate(180 8 8)' : undefined} /></svg></button>`)}</span>
    <${ErrorNote} error=${error} />
    ${isOpen && html`<${Comment} feedback=${feedback} onSave=${async (more) => { if (await set({ rating: 'down', ...more })) setOpen(false); }} onClose=${() => setOpen(false)} />`}`;
}

function Comment({ feedback, onSave, onClose }) {
  const [comment, setComment] = useState(feedback?.comment ?? '');
  const [share, setShare] = useState(feedback?.share ?? false);
  const submit = (event) => {
    event.preventDefault();
    onSave({ comment: comment.trim() || undefined, share });
  };
  const onKeyDown = (event) => event.key === 'Escape' && onClose();
  const form = useRef(null);
  useLayoutEffect(() => {
    const { current } = form;
    current.querySelector('textarea').focus({ preventScroll: true });
    current.scrollIntoView({ block: 'nearest' });
    // The focus goes back to the button that has opened the form.
    return () => current.contains(document.activeElement) && current.parentNode.querySelector('.rate:last-child').focus();
  }, []);
  return html`<form class="comment" ref=${form} aria-label="Comment on the rating" onSubmit=${submit} onKeyDown=${onKeyDown}>
    <label class="field"><span>What was wrong?</span><textarea rows="2" maxlength="2000" value=${comment} onInput=${(event) => setComment(event.target.value)}></textarea></label>
    <div class="row between"><label class="check"><input type="checkbox" checked=${share} onChange=${(event) => setShare(event.target.checked)} /><span>The agent’s owner may read the answer</span></label>
      <div class="row"><button type="button" class="button small" onClick=${onClose}>Close</button><button class="button small primary">Save</button></div></div>
  </form>`;
}

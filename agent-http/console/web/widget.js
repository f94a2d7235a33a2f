/** Loads the chat widget once the page around it is complete; docs/widget.md. */
(() => {
  const script = document.currentScript;
  if (!script) return console.error('agent-chat: widget.js is a classic script, without type="module"');
  const main = script.src.replace(/(widget\/\w+\/)?widget\.js([?#].*)?$/, 'widget/{{hash}}/widget/main.js');
  const { token } = script.dataset;
  const added = (globalThis[Symbol.for('agent-chat')] ??= new Set());
  const start = () => {
    if (token && !added.has(token)) {
      added.add(token);
      const chat = document.createElement('agent-chat');
      for (const { name, value } of script.attributes) {
        if (name.startsWith('data-')) chat.setAttribute(name.slice(5), value);
      }
      document.body.append(chat);
    }
    import(main).catch((error) => console.error('agent-chat: the widget cannot be loaded:', error.message));
  };
  const whenIdle = () => (globalThis.requestIdleCallback ? requestIdleCallback(start, { timeout: 2000 }) : setTimeout(start));
  if (document.readyState === 'complete') whenIdle();
  else addEventListener('load', whenIdle, { once: true });
})();

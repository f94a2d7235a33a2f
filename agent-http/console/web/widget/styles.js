/** Styles of the widget. They are adopted by its shadow root, which a page's content policy allows. */

const CSS = `
:host { all: initial !important; display: contents !important; }
:host([hidden]) { display: none !important; }
[hidden] { display: none !important; }
*, *::before, *::after { box-sizing: border-box; }
p, h2, ul, ol, pre, hr, blockquote { margin: 0; }

.root {
  --paper: #fff; --raised: #f4f2ee; --line: #e6e3dc; --ink: #211f1b; --soft: #655f55;
  --accent: var(--agent-accent, #0b6e5f); --accent-ink: #fff; --bg: var(--agent-bg, var(--paper)); --fg: var(--agent-fg, var(--ink));
  --radius: var(--agent-radius, 16px); --inset: var(--agent-inset, 20px);
  position: fixed; inset-block-end: var(--inset); inset-inline-end: var(--inset); z-index: var(--agent-z, 2147483000);
  display: block; color: var(--fg); color-scheme: light; -webkit-text-size-adjust: 100%; -webkit-font-smoothing: antialiased;
  font: var(--agent-font, 15px/1.55 ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif);
}
.root.dark {
  --paper: #1c1b18; --raised: #2a2823; --line: #37342d; --ink: #ece9e2; --soft: #a8a296;
  --accent: var(--agent-accent, #5cc9b7); --accent-ink: #06251f; color-scheme: dark;
}
@supports (color: oklch(from red l c h)) {
  .root, .root.dark { --accent-ink: oklch(from var(--accent) clamp(0.16, (0.66 - l) * 1000, 1) 0 0); }
}
.root.start { inset-inline: var(--inset) auto; }

button { font: inherit; color: inherit; cursor: pointer; }
svg { display: block; width: 24px; height: 24px; fill: none; stroke: currentcolor; stroke-width: 1.8; stroke-linecap: round; stroke-linejoin: round; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.only-read { position: absolute; width: 1px; height: 1px; margin: -1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }

.launcher { display: grid; place-items: center; width: 56px; height: 56px; padding: 0; border: 0; border-radius: 50%; background: var(--accent); color: var(--accent-ink); box-shadow: 0 2px 6px rgb(30 25 15 / 18%), 0 8px 24px rgb(30 25 15 / 16%); }
.launcher:hover { filter: brightness(1.06); }
.launcher:focus-visible { outline-offset: 3px; }

.panel {
  position: absolute; inset-block-end: 72px; inset-inline-end: 0; display: flex; flex-direction: column; overflow: hidden;
  width: min(var(--agent-width, 392px), calc(100vw - 2 * var(--inset))); height: min(var(--agent-height, 640px), calc(100vh - 2 * var(--inset) - 72px)); height: min(var(--agent-height, 640px), calc(100dvh - 2 * var(--inset) - 72px));
  border: 1px solid var(--line); border-radius: var(--radius); background: var(--bg); box-shadow: 0 2px 8px rgb(30 25 15 / 8%), 0 16px 48px rgb(30 25 15 / 18%);
}
.start .panel { inset-inline: 0 auto; }
.head { display: flex; align-items: center; gap: 2px; padding: 10px 10px 10px 20px; border-block-end: 1px solid var(--line); }
[dir=rtl] .head { padding: 10px 20px 10px 10px; }
.head h2 { flex: 1; min-width: 0; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; font-size: 1em; font-weight: 620; letter-spacing: -0.01em; }
.tool { display: grid; place-items: center; width: 44px; height: 44px; padding: 0; border: 0; border-radius: 10px; background: none; color: var(--soft); }
.tool:hover { background: var(--raised); color: var(--fg); }
.tool svg { width: 20px; height: 20px; }

.log { flex: 1; min-height: 0; padding: 20px; overflow: hidden auto; overscroll-behavior: contain; scrollbar-width: thin; scrollbar-color: var(--line) transparent; }
.log:focus-visible { outline-offset: -2px; }
.message { margin-block-end: 18px; overflow-wrap: anywhere; }
.message.user { width: fit-content; max-width: 85%; margin-inline-start: auto; padding: 8px 14px; border-radius: 14px; border-end-end-radius: 4px; background: var(--raised); white-space: pre-wrap; }
.text > * { margin-block-end: 10px; }
.text > :last-child { margin-block-end: 0; }
.waiting { display: flex; align-items: center; gap: 5px; height: 1.55em; }
.waiting i { width: 6px; height: 6px; border-radius: 50%; background: var(--soft); animation: breathe 1.2s ease-in-out infinite; }
.waiting i:nth-child(2) { animation-delay: 0.15s; }
.waiting i:nth-child(3) { animation-delay: 0.3s; }
@keyframes breathe { 0%, 60%, 100% { opacity: 0.25; } 30% { opacity: 1; } }
.end { margin-block-start: 6px; color: var(--soft); font-size: 0.87em; }
.chips { display: flex; flex-wrap: wrap; gap: 8px; margin-block-end: 18px; }
.chip { min-height: 44px; padding: 8px 16px; border: 1px solid var(--line); border-radius: 22px; background: none; text-align: start; }
.chip:hover { border-color: var(--accent); }

.question { margin-block-end: 18px; padding: 14px 16px 16px; border: 1px solid var(--line); border-inline-start: 3px solid var(--accent); border-radius: 10px; overflow-wrap: anywhere; }
.ask { font-weight: 620; }
.call { margin-block: 2px 10px; color: var(--soft); }
.call code { font-size: 0.87em; }
dl { display: grid; grid-template-columns: fit-content(40%) minmax(0, 1fr); gap: 2px 14px; margin: 0; }
dt { color: var(--soft); }
dd { margin: 0; white-space: pre-wrap; }
.choices { display: flex; flex-wrap: wrap; gap: 8px; margin-block-start: 14px; }
.choices button { min-height: 44px; padding: 8px 20px; border: 1px solid var(--soft); border-radius: 11px; background: none; }
.choices .yes { border-color: transparent; background: var(--accent); color: var(--accent-ink); }
.choices .end { margin: 0; }

.notice { display: flex; align-items: center; gap: 10px; margin: 0 16px 10px; padding: 4px 6px 4px 14px; min-height: 44px; border-radius: 10px; background: var(--raised); font-size: 0.93em; }
.notice span { flex: 1; }
.notice button { min-height: 36px; padding: 2px 12px; border: 1px solid var(--line); border-radius: 8px; background: var(--bg); }

.composer { display: flex; align-items: flex-end; gap: 6px; margin: 0 14px 14px; padding: 3px; border: 1px solid var(--soft); border-radius: 14px; background: var(--bg); }
.composer:focus-within { border-color: var(--accent); box-shadow: 0 0 0 1px var(--accent); }
textarea { flex: 1; min-width: 0; height: 44px; max-height: 144px; padding: 10px 8px 10px 12px; border: 0; outline: 0; background: none; color: inherit; font: inherit; line-height: 24px; resize: none; scrollbar-width: thin; }
textarea:focus-visible { outline: 0; }
textarea::placeholder { color: var(--soft); opacity: 1; }
.send { display: grid; flex: none; place-items: center; width: 44px; height: 44px; padding: 0; border: 0; border-radius: 11px; background: var(--accent); color: var(--accent-ink); }
.send:disabled { background: var(--raised); color: var(--soft); cursor: default; }
.send svg { width: 20px; height: 20px; stroke-width: 2; }
.stop svg { width: 24px; height: 24px; fill: currentcolor; }

a { color: var(--accent); text-underline-offset: 2px; text-decoration-thickness: 1px; }
code, pre { font-family: ui-monospace, "SF Mono", "Cascadia Code", Menlo, Consolas, monospace; font-size: 0.87em; }
strong, .md-h, th { font-weight: 620; }
.md-list { padding-inline-start: 22px; }
.md-list li { margin-block: 2px; }
.md-list li::marker, .md-host, .md-quote { color: var(--soft); }
.md-task { list-style: none; }
.md-quote { padding-inline-start: 12px; border-inline-start: 3px solid var(--line); }
.md-code { padding: 1px 5px; border-radius: 5px; background: var(--raised); }
.md-block { overflow: hidden; border-radius: 10px; background: var(--raised); }
.md-code-head { display: flex; align-items: center; justify-content: space-between; padding: 4px 6px 0 14px; color: var(--soft); font-size: 0.8em; }
.md-copy { min-height: 28px; padding: 0 8px; border: 0; background: none; }
pre code { font-size: inherit; }
.md-pre { padding: 6px 14px 12px; overflow-x: auto; direction: ltr; text-align: left; }
.md-scroll, .md-raw { overflow-x: auto; }
.md-table { border-collapse: collapse; font-size: 0.94em; overflow-wrap: normal; }
.md-table :is(th, td) { padding: 5px 14px 5px 0; border-block-end: 1px solid var(--line); text-align: start; vertical-align: top; }
hr { border: 0; border-block-start: 1px solid var(--line); }

@media (max-width: 480px) {
  .open { inset: 0 !important; }
  .open .launcher { display: none; }
  .open .panel { position: static; width: 100%; height: 100%; border: 0; border-radius: 0; }
}
@media (prefers-reduced-motion: reduce) { .waiting i { animation: none; opacity: 0.6; } }
@media (forced-colors: active) { .launcher, .send, .message.user, .chip { border: 1px solid; } }
`;

/** Returns the style sheet. */
export function styleSheet() {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(CSS);
  return sheet;
}

// Axe: the rules for people who use other means than a mouse and good eyes.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const TAGS = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22a', 'wcag22aa', 'best-practice'];

/** Rules whose outcome for a text follows from its colours and font, and from what is painted behind it. */
const COLOUR_RULES = ['color-contrast', 'link-in-text-block'];
/** Rules whose outcome depends on places and sizes. */
const LAYOUT_RULES = ['target-size', 'scrollable-region-focusable'];

/** Styles of texts in which axe has found no violation, in all pages of this process. */
const rightColours = new Set();

/**
 * Adds functions to the page that remember examined elements, so that views in two schemes and three widths do not take six times as
 * long as one. `known` are styles of texts in which axe has found no violation. It runs in the page.
 */
function remember(known) {
  const structures = new Set();
  const colours = new Set(known);
  const all = (root) => [...root.querySelectorAll('*')].flatMap((node) => [node, ...node.shadowRoot ? all(node.shadowRoot) : []]);
  const parentOf = (node) => node.assignedSlot ?? node.parentElement ?? node.getRootNode().host;

  /** Returns true if a part has elements, attributes, texts, values or hidden elements that were not there before. */
  const isNewStructure = (part) => {
    const words = all(document).map((node) => {
      const { display, visibility, position, clipPath, opacity, fontSize, fontWeight } = getComputedStyle(node);
      const shown = [node.checkVisibility(), display, visibility, position, clipPath, opacity, fontSize, fontWeight, node.value, node.checked, node.disabled, node.open];
      const attributes = [...node.attributes].map(({ name, value }) => `${name}=${value}`);
      return [node.tagName, ...attributes, ...shown, ...[...node.childNodes].map(({ data }) => data)].join(' ');
    });
    const structure = [part, ...words].join('\n');
    return !structures.has(structure) && Boolean(structures.add(structure));
  };

  /** Returns the elements with texts whose colours, fonts and backgrounds are those of no text before, and how these look. */
  const newColours = (part) => {
    const looks = [];
    const nodes = all(document).filter((node) => node.checkVisibility({ visibilityProperty: true }));
    const styles = new Map(nodes.map((node) => [node, getComputedStyle(node)]));
    const nothing = 'rgba(0, 0, 0, 0) none 1 none normal';
    const level = ({ position, zIndex }) => `${position} ${zIndex}`;
    const paint = (style) => {
      const { backgroundColor, backgroundImage, opacity, filter, mixBlendMode } = style;
      const words = [backgroundColor, backgroundImage, opacity, filter, mixBlendMode].join(' ');
      return words === nothing ? [] : [`${words} ${level(style)}`];
    };
    const isPlaced = (style) => style.position !== 'static' && paint(style).length > 0;
    const placed = nodes.filter((node) => isPlaced(styles.get(node))).map((node) => [node, node.getBoundingClientRect()]);
    const hasText = (node) => /^(INPUT|TEXTAREA|SELECT)$/.test(node.tagName) || [...node.childNodes].some(({ nodeType, data }) => nodeType === Node.TEXT_NODE && data.trim());
    const texts = nodes.filter((node) => {
      if (!hasText(node) || (part && !node.closest(part))) return false;
      const { color, fontSize, fontWeight, textShadow, textDecorationLine } = styles.get(node);
      const behind = [];
      for (let other = node; other; other = parentOf(other)) behind.push(...paint(styles.get(other) ?? getComputedStyle(other)));
      const own = node.getBoundingClientRect();
      const meets = ({ left, right, top, bottom }) => left < own.right && right > own.left && top < own.bottom && bottom > own.top;
      const beside = placed.filter(([other, box]) => meets(box) && !other.contains(node) && !node.contains(other));
      const around = node.tagName === 'A' ? styles.get(parentOf(node))?.color : '';
      const covers = ({ left, right, top, bottom }) => left <= own.left && right >= own.right && top <= own.top && bottom >= own.bottom;
      const painted = [level(styles.get(node)), ...behind, 'and', ...beside.map(([other, box]) => `${paint(styles.get(other))} ${covers(box)}`)];
      const key = [color, fontSize, fontWeight, textShadow, textDecorationLine, around, ...painted].join('\n');
      if (colours.has(key)) return false;
      colours.add(key);
      looks.push(key);
      return true;
    });
    return { texts, looks };
  };
  globalThis.examined = { isNewStructure, newColours };
}

/**
 * Returns what axe finds wrong with what is shown, or with the part of it that a selector names, and was not examined before: the rules of
 * colours are applied to texts that look as none has looked in this page, and the rules that depend on neither colours nor layout where
 * another structure is shown. `isRecoloured` if nothing but colours has changed.
 */
export async function axeViolations(page, part, isRecoloured = false) {
  if (!(await page.evaluate(() => 'axe' in globalThis))) {
    await page.evaluate(axe);
    // Nothing is made of what is right.
    await page.evaluate(() => globalThis.axe.configure({ noHtml: true }));
    await page.evaluate(remember, [...rightColours]);
  }
  const { found, right } = await page.evaluate(async ([tags, colourRules, layoutRules, part, isRecoloured]) => {
    const { axe, examined } = globalThis;
    const find = async (context, rules) => {
      const options = { ...rules, resultTypes: ['violations'], selectors: false, iframes: false, preload: false, elementRef: true };
      const { violations } = await axe.run(context, options);
      return violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map(({ element }) => element.outerHTML.slice(0, 160)).join(' | ')}`);
    };
    const found = [];
    if (!isRecoloured) {
      const others = { runOnly: tags, rules: Object.fromEntries(colourRules.map((id) => [id, { enabled: false }])) };
      found.push(...await find(part ?? document, examined.isNewStructure(part) ? others : { runOnly: layoutRules }));
    }
    const { texts, looks } = examined.newColours(part);
    const wrong = texts.length > 0 ? await find(texts, { runOnly: colourRules }) : [];
    return { found: [...found, ...wrong], right: wrong.length > 0 ? [] : looks };
  }, [TAGS, COLOUR_RULES, LAYOUT_RULES, part, isRecoloured]);
  right.forEach((look) => rightColours.add(look));
  return found;
}

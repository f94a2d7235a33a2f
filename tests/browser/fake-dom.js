// As much of a document as the drawing of Markdown needs, without a browser.

class Node {
  parentNode = null;
  childNodes = [];

  get firstChild() { return this.childNodes[0] ?? null; }

  get lastChild() { return this.childNodes.at(-1) ?? null; }

  append(...children) {
    for (const child of children) {
      const node = child instanceof Node ? child : new Text(String(child));
      node.remove();
      node.parentNode = this;
      this.childNodes.push(node);
    }
  }

  appendChild(child) {
    this.append(child);
    return child;
  }

  remove() {
    const siblings = this.parentNode?.childNodes;
    siblings?.splice(siblings.indexOf(this), 1);
    this.parentNode = null;
  }

  replaceChildren() {
    for (const child of [...this.childNodes]) child.remove();
  }
}

class Text extends Node {
  constructor(data = '') {
    super();
    this.data = data;
  }

  appendData(data) { this.data += data; }

  get text() { return JSON.stringify(this.data); }
}

class Element extends Node {
  attributes = {};

  constructor(name) {
    super();
    this.name = name;
  }

  setAttribute(name, value) { this.attributes[name] = String(value); }

  addEventListener() {}

  /** The tree as a text: names, properties, attributes and children. Adjacent texts are one, as a reader sees them. */
  get text() {
    const { name, parentNode, childNodes, attributes, ...properties } = this;
    const children = childNodes.map(({ text }) => text).join('').replaceAll('""', '');
    return `${name}${JSON.stringify({ ...properties, ...attributes })}(${children})`;
  }
}

globalThis.Text = Text;
globalThis.document = { createElement: (name) => new Element(name) };

// Preact with hooks, signals and htm's templates, as one module.
import { createElement, render } from 'preact';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { computed, effect, signal } from '@preact/signals';
import htm from 'htm';

/** An element that htm makes anew each time: one that it kept would keep the tree in which it was drawn first, with all data of that. */
function element(...all) {
  this[0] = 3;
  return createElement(...all);
}

const html = htm.bind(element);
export { computed, effect, html, render, signal, useEffect, useLayoutEffect, useMemo, useRef, useState };

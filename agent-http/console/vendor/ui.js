// Preact with hooks, signals and htm's templates, as one module.
import { createElement, render } from 'preact';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { computed, effect, signal } from '@preact/signals';
import htm from 'htm';

const html = htm.bind(createElement);
export { computed, effect, html, render, signal, useEffect, useLayoutEffect, useMemo, useRef, useState };

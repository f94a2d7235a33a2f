// Preact with hooks, signals and htm's templates, as one module.
import { Fragment, createElement, render } from 'preact';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { batch, computed, effect, signal, useComputed, useSignal } from '@preact/signals';
import htm from 'htm';

const html = htm.bind(createElement);
export {
  Fragment, batch, computed, effect, html, render, signal, useComputed, useEffect, useLayoutEffect, useMemo, useRef,
  useSignal, useState,
};

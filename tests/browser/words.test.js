// Numbers and times in words.

import assert from 'node:assert/strict';

import { duration, moment, remaining } from '../../agent-http/console/web/lib/format.js';
import { test } from './harness.js';

test('times are rounded to what they say', () => {
  const words = (...times) => times.map((ms) => duration(ms));
  assert.deepEqual(words(0, 999.4, 999.6, 9994, 9996, 59_940, 59_960), ['0 ms', '999 ms', '1.00 s', '9.99 s', '10.0 s', '59.9 s', '1 min 0 s']);
  assert.deepEqual(words(119_600, 3_599_600, 7_260_000, 86_400_000, 97_200_000), ['2 min 0 s', '1 h 0 min', '2 h 1 min', '1 d', '1 d 3 h']);
  assert.deepEqual([7, 60, 7260].map(remaining), ['7 s', '1 min 0 s', '2 h 1 min']);
});

test('a day of another year has its year', () => {
  const now = new Date();
  const [today, later] = [now, new Date(now.getFullYear() + 1, now.getMonth(), 15)].map((time) => moment(time.toISOString()));
  assert.ok(!today.includes(String(now.getFullYear())), today);
  assert.ok(later.includes(String(now.getFullYear() + 1)), later);
});

// An application that is a process of its own, and a proxy before an application that can stall.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { createInterface } from 'node:readline';

import { required } from './support.js';

const PREFIX = 'child listening on ';

/** Starts the application; at the port of an earlier one, if it is given. Returns `{address, kill, terminate}`. */
export async function startApplication(port = 0) {
  const env = { ...process.env, ...JSON.parse(required('APP_SETTINGS')), PORT: String(port) };
  const child = spawn(required('APP_PROGRAM'), JSON.parse(required('APP_ARGUMENTS')), { env, stdio: ['pipe', 'pipe', 'inherit'] });
  const ended = once(child, 'exit');
  const end = async (signal) => {
    child.kill(signal);
    await ended;
  };
  let address;
  const lines = createInterface(child.stdout);
  for await (const line of lines) {
    const place = line.indexOf(PREFIX);
    if (place >= 0) address = line.slice(place + PREFIX.length).trim();
    if (address) break;
  }
  // Later output must be read, too.
  child.stdout.resume();
  assert.ok(address, 'the application has ended before it listens');
  return { address: `http://${address}/`, kill: () => end('SIGKILL'), terminate: () => end('SIGTERM') };
}

/**
 * Starts a proxy of an application. `stall()` makes its connections silent without an end, as they are for a computer that
 * has slept; those that are opened later work. A request over a silent one is reset, as by a router that has forgotten it.
 */
export async function startProxy(target) {
  const { hostname, port } = new URL(target);
  const pairs = new Set();
  const server = createServer((client) => {
    const upstream = connect(Number(port), hostname);
    const pair = [client, upstream];
    pairs.add(pair);
    client.pipe(upstream);
    upstream.pipe(client);
    for (const socket of pair) {
      socket.on('error', () => {});
      socket.on('close', () => {
        pairs.delete(pair);
        pair.forEach((other) => other.destroy());
      });
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    address: `http://127.0.0.1:${server.address().port}/`,
    stall() {
      for (const [client, upstream] of pairs) {
        client.unpipe(upstream);
        upstream.unpipe(client);
        client.on('data', () => client.resetAndDestroy());
        client.resume();
        // What arrives is read and lost.
        upstream.resume();
      }
      return pairs.size;
    },
    close() {
      for (const pair of pairs) pair.forEach((socket) => socket.destroy());
      server.close();
    },
  };
}

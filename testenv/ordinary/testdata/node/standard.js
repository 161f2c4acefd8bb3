// What programs do with Node's standard library.
'use strict';
const assert = require('node:assert');
const { exec, execFileSync, fork, spawn, spawnSync } = require('node:child_process');
const crypto = require('node:crypto');
const dgram = require('node:dgram');
const dns = require('node:dns');
const fs = require('node:fs');
const http = require('node:http');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');
const { pipeline } = require('node:stream/promises');
const { setTimeout: sleep } = require('node:timers/promises');
const { promisify } = require('node:util');
const { Worker, isMainThread, parentPort, workerData } = require('node:worker_threads');
const zlib = require('node:zlib');

const once = (emitter, event) => require('node:events').once(emitter, event);

async function get(url) {
  const request = http.get(url);
  const [response] = await once(request, 'response');
  let body = '';
  for await (const chunk of response) body += chunk;
  return body;
}

async function main() {
  // Files: the thread pool, streams, watching.
  await Promise.all(Array.from({ length: 200 }, (_, i) => fs.promises.writeFile(`f${i}`, `${i}`)));
  assert.equal((await fs.promises.readdir('.')).length, 200);
  await fs.promises.writeFile('big', crypto.randomBytes(1 << 20));
  await pipeline(fs.createReadStream('big'), zlib.createGzip(), fs.createWriteStream('big.gz'));
  assert(zlib.gunzipSync(fs.readFileSync('big.gz')).equals(fs.readFileSync('big')));
  await fs.promises.cp('big', path.join(os.tmpdir(), 'copy'));
  await fs.promises.mkdir('a/b/c', { recursive: true });
  await fs.promises.rm('a', { recursive: true });
  const watcher = fs.watch('.');
  const changed = once(watcher, 'change');
  fs.writeFileSync('watched', 'x');
  await changed;
  watcher.close();
  await assert.rejects(fs.promises.writeFile('/usr/x', 'x'), { code: 'EROFS' });

  // A server and clients, by each name of this machine.
  const server = http.createServer((request, response) => response.end(`hello ${request.url}`));
  server.listen(0);
  await once(server, 'listening');
  const { port } = server.address();
  for (const host of ['127.0.0.1', '[::1]', 'localhost']) assert.equal(await get(`http://${host}:${port}/x`), 'hello /x');
  assert.equal(await (await fetch(`http://localhost:${port}/y`)).text(), 'hello /y');
  await Promise.all(Array.from({ length: 100 }, () => get(`http://127.0.0.1:${port}/`)));
  server.close();
  server.closeAllConnections();
  const unix = net.createServer((c) => c.pipe(c)).listen('/tmp/node.sock');
  await once(unix, 'listening');
  const client = net.connect('/tmp/node.sock');
  client.write('echo');
  assert.equal(String((await once(client, 'data'))[0]), 'echo');
  client.destroy();
  unix.close();
  const udp = dgram.createSocket('udp4').bind(0, '127.0.0.1');
  await once(udp, 'listening');
  const datagram = once(udp, 'message');
  const sender = dgram.createSocket('udp4');
  sender.send('hi', udp.address().port, '127.0.0.1');
  assert.equal(String((await datagram)[0]), 'hi');
  sender.close();
  udp.close();
  const refused = net.connect(80, '198.51.100.7');
  const [error] = await once(refused, 'error').catch((e) => [e]);
  assert.equal(error.code, 'EPERM');
  const began = Date.now();
  await assert.rejects(promisify(dns.lookup)('no.such.example'));
  assert(Date.now() - began < 2000);

  // Children.
  assert.equal((await promisify(exec)('echo $((6*7))')).stdout, '42\n');
  assert.equal(String(execFileSync('cat', { input: 'in' })), 'in');
  assert.equal(spawnSync('sh', ['-c', 'exit 3']).status, 3);
  const sleeper = spawn('sleep', ['60']);
  sleeper.kill();
  assert.equal((await once(sleeper, 'exit'))[1], 'SIGTERM');
  const child = fork(__filename, ['child']);
  child.send({ n: 20 });
  assert.deepEqual((await once(child, 'message'))[0], { n: 21 });
  await once(child, 'exit');

  // Threads, shared memory, timers, signals, crypto in the pool.
  const shared = new SharedArrayBuffer(4);
  await Promise.all(Array.from({ length: 4 }, () => once(new Worker(__filename, { workerData: shared }), 'exit')));
  assert.equal(new Int32Array(shared)[0], 4000);
  let ticks = 0;
  const timer = setInterval(() => ticks++, 5);
  await sleep(200);
  clearInterval(timer);
  assert(ticks > 5);
  const signal = once(process, 'SIGUSR2');
  process.kill(process.pid, 'SIGUSR2');
  await signal;
  const derive = promisify(crypto.pbkdf2);
  await Promise.all(Array.from({ length: 8 }, (_, i) => derive('p', `${i}`, 20000, 32, 'sha256')));

  // What it is told of the machine.
  assert.equal(os.hostname(), 'box');
  assert.equal(os.userInfo().username, 'agent');
  assert.equal(os.homedir(), '/scratch');
  assert(os.cpus().length >= 1 && os.totalmem() > 0 && os.loadavg().length === 3);
  if (os.availableParallelism) assert(os.availableParallelism() <= 2);
  assert.equal(new Intl.DateTimeFormat('de-DE', { timeZone: 'Asia/Tokyo', hour: '2-digit' }).format(0), '09 Uhr');
  assert.equal(new Function('return WebAssembly.validate(new Uint8Array([0,97,115,109,1,0,0,0]))')(), true);
  process.report.getReport();
  console.log('ok');
}

if (!isMainThread) {
  const counter = new Int32Array(workerData);
  for (let i = 0; i < 1000; i++) Atomics.add(counter, 0, 1);
} else if (process.argv[2] === 'child') {
  process.once('message', ({ n }) => { process.send({ n: n + 1 }); process.disconnect(); });
} else {
  main().catch((e) => { console.error(e); process.exit(1); });
}

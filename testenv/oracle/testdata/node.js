// Node: files by its pool of threads, children, workers, servers and clients.
const fs = require('fs'), path = require('path'), net = require('net'), http = require('http'), dgram = require('dgram'), dns = require('dns')
const { execFile, execSync, fork, spawn } = require('child_process')
const { Worker, isMainThread } = require('worker_threads')
const { once } = require('events')
if (!isMainThread) {
	fs.writeFileSync('/scratch/worker', fs.readFileSync('/etc/hostname'))
	return
}
if (process.send) {
	fs.appendFileSync('/scratch/forked', 'x')
	process.send('done', () => process.disconnect())
	return
}
const fails = (p) => p.then(() => { throw new Error('did not fail') }, () => {})
const connect = (options) => new Promise((yes, no) => { const s = net.connect(options, () => { s.end(); yes() }); s.on('error', no) })
async function main() {
	await fs.promises.mkdir('d/e', { recursive: true })
	await Promise.all(Array.from({ length: 60 }, (_, i) => fs.promises.writeFile(`d/f${i}`, `${i}`)))
	const texts = await Promise.all(Array.from({ length: 60 }, (_, i) => fs.promises.readFile(`d/f${i}`, 'utf8')))
	if (texts.reduce((a, b) => a + Number(b), 0) !== 1770) throw new Error('sum')
	await fs.promises.cp('d', 'c', { recursive: true })
	await fs.promises.rename('c', 'r')
	await fails(fs.promises.readFile('none'))
	await fails(fs.promises.open('/etc/passwd', 'a'))
	fs.createReadStream('/etc/passwd').pipe(fs.createWriteStream('copy'))
	for (const flag of ['r+', 'a', 'ax+', 'w+', 'as']) fs.closeSync(fs.openSync(flag === 'ax+' ? 'new' : 'd/f1', flag))
	await fs.promises.rm('r', { recursive: true })
	execSync('cat /etc/hosts | sort >sorted')
	await new Promise((yes) => execFile('ls', ['/'], yes))
	await once(spawn('sh', ['-c', 'exit 3'], { cwd: '/usr' }), 'exit')
	await once(spawn('/none').on('error', () => {}), 'close').catch(() => {})
	await once(fork(__filename), 'exit')
	await Promise.all([1, 2, 3].map(() => once(new Worker(__filename), 'exit')))
	const server = http.createServer((q, a) => a.end('hello'))
	await once(server.listen(0, '127.0.0.1'), 'listening')
	const url = `http://127.0.0.1:${server.address().port}`
	for (let i = 0; i < 5; i++) if (await (await fetch(url)).text() !== 'hello') throw new Error('fetch')
	server.close()
	server.closeAllConnections()
	await fails(connect({ host: '127.0.0.1', port: 9 }))
	await fails(connect({ host: '::1', port: 9 }))
	await fails(connect({ host: 'localhost', port: 9 }))
	await fails(connect({ host: '192.0.2.1', port: 80 }))
	await fails(connect({ path: '/none' }))
	await fails(fetch('http://no.such.example/'))
	await fails(new Promise((yes, no) => dns.resolve4('no.such.example', (e) => e ? no(e) : yes())))
	const s = dgram.createSocket('udp4')
	await new Promise((yes) => s.send('x', 4660, '127.0.0.1', yes))
	await new Promise((yes) => s.send('x', 4660, '192.0.2.1', yes))
	s.close()
	console.log('ok')
}
main().catch((e) => { console.log(e); process.exit(1) })

<?php
// PHP: streams, includes, children, sockets.
function fails($done) { if ($done !== false) { echo "it did not fail\n"; exit(1); } }
error_reporting(0);
mkdir('d/e', 0777, true);
foreach (['w', 'a', 'r', 'r+', 'c+', 'x'] as $m) { $f = fopen($m === 'x' ? 'd/x' : 'd/f', $m) or exit(2); fwrite($f, 'x'); fclose($f); }
fails(fopen('d/x', 'x')); fails(fopen('d/none', 'r')); fails(file_put_contents('/etc/passwd', 'x'));
file_put_contents('inc.php', '<?php return 42;'); if ((include 'inc.php') !== 42) exit(3); include 'none.php';
copy('/etc/passwd', 'd/copy'); rename('d/copy', 'd/moved'); symlink('moved', 'd/link'); echo count(file('d/link')) > 3 ? "read\n" : '';
$z = gzopen('d/z.gz', 'w'); gzwrite($z, 'zipped'); gzclose($z); echo file_get_contents('compress.zlib://d/z.gz'), "\n";
$t = tmpfile(); fwrite($t, 'x'); fclose($t); unlink(tempnam('/tmp', 'php'));
foreach (new RecursiveIteratorIterator(new RecursiveDirectoryIterator('/usr/share/zoneinfo/Europe', FilesystemIterator::SKIP_DOTS)) as $file) md5_file($file);
exec('sort -r d/moved', $lines); echo shell_exec('echo shell'); $p = popen('cat >d/piped', 'w'); fwrite($p, 'x'); pclose($p);
$p = proc_open(['cat', '/etc/hostname'], [1 => ['file', 'd/host', 'w']], $pipes, '/usr'); proc_close($p);
if (($child = pcntl_fork()) === 0) { pcntl_exec('/bin/true', ['executed']); } pcntl_waitpid($child, $status);
$s = stream_socket_server('tcp://127.0.0.1:0'); $name = stream_socket_get_name($s, false);
$c = stream_socket_client("tcp://$name"); $a = stream_socket_accept($s); fwrite($a, "hello\n"); echo fgets($c);
fails(stream_socket_client('tcp://127.0.0.1:9')); fails(stream_socket_client('tcp://192.0.2.1:80', $e, $m, 2)); fails(file_get_contents('http://no.such.example/'));
$u = stream_socket_client('udp://127.0.0.1:4660'); fwrite($u, 'x'); fails(stream_socket_client('udp://192.0.2.1:53'));
$u = stream_socket_server('udp://127.0.0.1:0', $e, $m, STREAM_SERVER_BIND); stream_socket_sendto($u, 'x', 0, '127.0.0.1:4661');
echo "ok\n";

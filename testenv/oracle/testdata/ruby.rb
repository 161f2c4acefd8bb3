# Ruby: files, temporary files, children, threads, sockets.
require 'fileutils'
require 'json'
require 'net/http'
require 'open3'
require 'set'
require 'socket'
require 'tempfile'
require 'yaml'
def fails
  yield
  raise 'did not fail'
rescue SystemCallError, SocketError
  nil
end
FileUtils.mkdir_p 'd/e'
%w[w a r r+ wx].each { |m| File.open(m == 'wx' ? 'd/x' : 'd/f', m) { |f| m.include?('r') ? f.read : f.write('x') } }
fails { File.open('d/x', 'wx') }
fails { File.read('d/none') }
fails { File.write('/etc/passwd', 'x') }
FileUtils.cp '/etc/passwd', 'd/copy'
FileUtils.mv 'd/copy', 'd/moved'
Tempfile.create('x') { |f| f.write YAML.dump(Dir['/usr/lib/ruby/*'].to_set.to_a) }
threads = 8.times.map { |i| Thread.new { File.write("d/t#{i}", JSON.dump([i])) } }
threads.each(&:join)
out, status = Open3.capture2('sort', '-r', stdin_data: "b\na\n")
raise out unless out == "b\na\n" && status.success?
raise unless `echo $((6*7))` == "42\n"
IO.popen(%w[cat /etc/hosts], &:read)
pid = fork { File.write('d/forked', 'x'); exec 'true', 'from', 'a fork' }
Process.wait pid
Process.wait spawn('cat', in: '/etc/hostname', out: 'd/host', chdir: '/usr') rescue fails { raise Errno::ENOENT }
fails { spawn '/none' }
server = TCPServer.new('127.0.0.1', 0)
port = server.addr[1]
Thread.new { 3.times { c = server.accept; c.readpartial(1000); c.write "HTTP/1.0 200 OK\r\n\r\nx"; c.close } }
3.times { raise unless Net::HTTP.get(URI("http://127.0.0.1:#{port}/")) == 'x' }
fails { TCPSocket.new('127.0.0.1', 9) }
fails { TCPSocket.new('192.0.2.1', 80) }
fails { TCPSocket.new('no.such.example', 80) }
UDPSocket.new.send('x', 0, '127.0.0.1', 4660)
fails { UDPSocket.new.send('x', 0, '192.0.2.1', 53) }
FileUtils.rm_r 'd'
puts 'ok'

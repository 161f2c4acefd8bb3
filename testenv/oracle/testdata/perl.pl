# Perl: every form of open, children, sockets, its own tools.
use strict; use warnings;
use File::Copy; use File::Find; use File::Path qw(make_path rmtree); use File::Temp qw(tempfile tempdir); use Fcntl; use IO::Socket::INET; use IPC::Open3; use POSIX ();
sub fails { my ($done, $what) = @_; die "$what did not fail" if $done }
make_path('d/e/f');
for my $mode (qw(> >> < +< +> +>>)) { open(my $h, $mode, 'd/file') or die "$mode: $!"; close $h }
sysopen(my $x, 'd/new', O_CREAT | O_EXCL | O_WRONLY, 0600) or die; print $x "x\n"; close $x;
fails(sysopen(my $y, 'd/new', O_CREAT | O_EXCL | O_WRONLY), 'exclusive');
fails(open(my $z, '<', 'd/none'), 'none');
copy('/etc/passwd', 'd/copy') or die; move('d/copy', 'd/moved') or die;
open(my $in, '-|', 'sort', '-r', 'd/moved') or die; my @lines = <$in>; close $in;
open(my $out, '|-', 'cat >d/out') or die; print $out @lines; close $out;
my ($temp, $name) = tempfile(UNLINK => 1); my $dir = tempdir(CLEANUP => 1); print $temp "x"; close $temp;
my $n = 0; find(sub { $n++ if -f }, '/usr/share/perl5', '/usr/share/perl') if -d '/usr/share/perl5'; print "found some\n" if $n;
my $said = `echo back | tr a-z A-Z`; die $said unless $said eq "BACK\n";
my $pid = open3(my $to, my $from, undef, 'cat'); print $to "x"; close $to; my @got = <$from>; waitpid($pid, 0);
for my $i (1 .. 5) { my $p = fork // die; if (!$p) { open(my $h, '>', "d/child$i"); print $h $i; close $h; POSIX::_exit($i) } }
1 while wait > 0;
system('true', 'with', 'words') == 0 or die; system('/none 2>/dev/null'); exec_in_child();
sub exec_in_child { my $p = fork // die; if (!$p) { no warnings; exec '/none/x'; POSIX::_exit(1) } waitpid($p, 0) }
my $server = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1', LocalPort => 0) or die;
if (!fork) { my $c = $server->accept; print $c "hello\n"; POSIX::_exit(0) }
my $c = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $server->sockport) or die; die unless <$c> eq "hello\n"; wait;
fails(IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => 9), 'closed');
fails(IO::Socket::INET->new(PeerAddr => '192.0.2.1', PeerPort => 80, Timeout => 2), 'outside');
IO::Socket::INET->new(Proto => 'udp', PeerAddr => '127.0.0.1', PeerPort => 4660)->send('x');
unlink glob 'd/child*'; rename 'd/out', 'd/e/out' or die; rmtree('d');
system($^X, '-MJSON::PP', '-ne', 'print if /root/', '/etc/passwd'); system($^X, '-pi.bak', '-e', 's/a/b/', 'none'); system('perldoc -V >/dev/null 2>&1');
print "ok\n";

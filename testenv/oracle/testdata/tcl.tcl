# Tcl: channels, pipes, and sockets with events.
file mkdir d/e
foreach mode {w a r r+ w+ a+ {WRONLY CREAT EXCL}} { close [open [expr {[llength $mode] > 1 ? "d/x" : "d/f"}] $mode] }
foreach bad {{open d/x {WRONLY CREAT EXCL}} {open d/none} {open /etc/passwd w} {source none} {exec /none} {socket 127.0.0.1 9} {socket 192.0.2.1 80} {socket no.such.example 80}} {
	if {![catch $bad]} { puts "$bad did not fail"; exit 1 }
}
file copy /etc/passwd d/copy; file rename d/copy d/moved; file link -symbolic d/link moved
set f [open d/link]; set n [llength [split [read $f] \n]]; close $f
exec sort -r <d/moved | head -n 3 >d/sorted 2>@stderr
set p [open "|cat >d/piped" w]; puts $p x; close $p
set p [open "|sh {-c} {echo back; exit 0}"]; gets $p line; close $p; if {$line ne "back"} { exit 1 }
set made [file tempfile name]; close $made; file delete $name
proc accept {c args} { puts $c hello; close $c }
set server [socket -server accept -myaddr 127.0.0.1 0]
set c [socket -async 127.0.0.1 [lindex [fconfigure $server -sockname] 2]]
fileevent $c readable { gets $c word; close $c; set done 1 }
vwait done
if {$word ne "hello"} { exit 1 }
foreach dir [glob -type d /usr/share/tcltk/*] { glob -nocomplain $dir/* }
catch {package require none}; clock format 0 -timezone :Asia/Tokyo
file delete -force d
puts ok

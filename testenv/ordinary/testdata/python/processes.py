"""Child processes, in every way the standard library starts them."""

import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import time

assert subprocess.check_output(["echo", "hello"], text=True) == "hello\n"
assert subprocess.run("echo $((6*7)); exit 3", shell=True, capture_output=True, text=True).returncode == 3
assert subprocess.run(["cat"], input=b"x" * 1000000, capture_output=True).stdout == b"x" * 1000000
assert subprocess.getstatusoutput("echo a; false")[0] == 1
assert os.system("exit 7") >> 8 == 7
assert os.popen("echo popen").read() == "popen\n"
first = subprocess.Popen(["seq", "1000"], stdout=subprocess.PIPE)
second = subprocess.Popen(["tail", "-n1"], stdin=first.stdout, stdout=subprocess.PIPE)
first.stdout.close()
assert second.communicate()[0] == b"1000\n" and first.wait() == 0
try:
    subprocess.run(["sleep", "10"], timeout=0.2)
    sys.exit("no timeout")
except subprocess.TimeoutExpired:
    pass
try:
    subprocess.run(["no-such-program"])
    sys.exit("found what is not there")
except FileNotFoundError:
    pass
child = subprocess.run([sys.executable, "-c", "import os; print(os.getsid(0) == os.getpid(), os.getcwd(), os.environ)"],
                       start_new_session=True, cwd="/tmp", env={"A": "b"}, capture_output=True, text=True, check=True)
assert child.stdout.startswith("True /tmp") and "'A': 'b'" in child.stdout, child.stdout
child = subprocess.run(["sh", "-c", "ulimit -n; umask"], preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
                       umask=0o027, capture_output=True, text=True, check=True)
assert child.stdout == "64\n0027\n", child.stdout
r, w = os.pipe()
subprocess.run(["sh", "-c", f"echo inherited >&{w}"], pass_fds=[w], check=True)
assert os.read(r, 100) == b"inherited\n"

pid = os.fork()
if pid == 0:
    os._exit(5)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 6"], os.environ)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 6
assert os.spawnvp(os.P_WAIT, "sh", ["sh", "-c", "exit 4"]) == 4
pid = os.fork()
if pid == 0:
    os.execlp("true", "true")
fd = os.pidfd_open(pid)
assert os.waitid(os.P_PIDFD, fd, os.WEXITED).si_status == 0

# Groups, stopping and going on, priorities.
p = subprocess.Popen(["sleep", "60"], process_group=0) if sys.version_info >= (3, 11) else subprocess.Popen(["sleep", "60"])
p.send_signal(signal.SIGSTOP)
os.waitid(os.P_PID, p.pid, os.WSTOPPED)
p.send_signal(signal.SIGCONT)
os.killpg(p.pid, signal.SIGTERM)
assert p.wait() == -signal.SIGTERM
assert os.nice(1) >= 1
assert os.getpriority(os.PRIO_PROCESS, 0) >= 1

# A daemon that outlives its parent is reaped by init; a script that is written, then run.
subprocess.run("(sleep 0.2; echo late > late.txt) &", shell=True, check=True)
script = pathlib.Path("tool.sh")
script.write_text("#!/bin/sh\necho script $1\n")
script.chmod(0o755)
assert subprocess.check_output(["./tool.sh", "ran"]) == b"script ran\n"
shutil.copy(shutil.which("echo"), "/tmp/echo")
assert subprocess.check_output(["/tmp/echo", "copied"]) == b"copied\n"
for _ in range(200):
    subprocess.run(["true"], check=True)
deadline = time.monotonic() + 5
while not os.path.exists("late.txt") and time.monotonic() < deadline:
    time.sleep(0.05)
assert os.path.exists("late.txt")
assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss > 0
print("ok")

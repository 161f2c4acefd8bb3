"""Runs one of CPython's own test modules, which is the first argument, and says which tests fail.

The second is what it may use of what the tests call resources, such as "cpu,network" (which includes loopback). The other arguments are patterns of tests that are known to fail here. A failure that none of them matches is a
surprise, and so is a pattern that matches no failure.
"""

import fnmatch
import re
import subprocess
import sys

module, resources, *known = sys.argv[1:]
with open("log", "wb") as log:
    run = subprocess.run([sys.executable, "-m", "test", "-v", "-u", resources, "--timeout", "850", module],
                         stdout=log, stderr=subprocess.STDOUT)
text = open("log", errors="replace").read()

failed = {}
for block in re.split(r"\n={70}\n", text)[1:]:
    if found := re.match(r"(?:FAIL|ERROR): (\S+) \((\S+?)\)", block):
        method, name = found.groups()
        name = name.removeprefix("test.").removeprefix(module + ".")
        if not name.endswith(method):
            name += "." + method
        body = re.split(r"\n-{70}\n", block)
        lines = [line for line in body[1].splitlines() if line and not line.startswith(" ")] if len(body) > 1 else []
        failed.setdefault(name, lines[-1] if lines else "")
ran = sum(map(int, re.findall(r"^Ran (\d+) tests?", text, re.M)))
skipped = sum(map(int, re.findall(r"^(?:OK|FAILED) \(.*?skipped=(\d+)", text, re.M)))

surprises = 0
for name, why in sorted(failed.items()):
    expected = any(fnmatch.fnmatchcase(name, k) for k in known)
    surprises += not expected
    print("known:" if expected else "FAILED:", name, "|", why[-300:])
for k in known:
    if not any(fnmatch.fnmatchcase(name, k) for name in failed):
        surprises += 1
        print("PASSES:", k)
# 2 says that tests failed, 3 that one changed its environment, 4 that all were skipped: which is not what we want.
if run.returncode not in (0, 2) or (run.returncode == 2) != bool(failed) or ran == 0:
    surprises += 1
    print("exit code", run.returncode)
print(f"{module}: {ran} tests, {skipped} skipped, {len(failed)} failed")
if surprises:
    print(text[-20000:], file=sys.stderr)
    sys.exit(1)

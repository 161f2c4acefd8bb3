"""More output than is kept does not stall the program, and neither does its being unread."""

import os
import sys

line = "0123456789" * 10 + "\n"
for i in range(100_000):
    sys.stdout.write(line)
sys.stdout.flush()
os.write(2, b"e" * 3_000_000)
print("ok")

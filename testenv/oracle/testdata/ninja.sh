# ninja, with dependencies that a compiler writes.
set -e
cat >build.ninja <<'X'
rule cc
  command = gcc -MD -MF $out.d -c $in -o $out
  depfile = $out.d
  deps = gcc
rule link
  command = gcc $in -o $out
build a.o: cc a.c
build b.o: cc b.c
build program: link a.o b.o
X
echo 'int two(void);' >b.h
printf '#include <stdio.h>\n#include "b.h"\nint main(void) { printf("%%d\\n", two()); }\n' >a.c
printf '#include "b.h"\nint two(void) { return 2; }\n' >b.c
ninja -j2 >/dev/null && ./program && ninja >/dev/null && touch b.h && ninja -v >/dev/null && ninja -t deps >/dev/null
echo 'wrong' >b.c && ninja >/dev/null 2>&1 || true
ninja -t clean >/dev/null; ninja -f none 2>/dev/null || true
echo ok

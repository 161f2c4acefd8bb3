# make: several at a time, recursive, included files that are made first.
set -e
cat >Makefile <<'X'
all: sub/all $(addsuffix .out,1 2 3 4 5 6)
include made.mk
-include none.mk
made.mk: ; @echo 'VERSION := $(shell cat /etc/debian_version)' >$@
%.out: %.in ; @sort $< >$@.tmp && mv $@.tmp $@
%.in: ; @seq $* >$@
.INTERMEDIATE: $(addsuffix .in,1 2 3)
sub/all: ; @mkdir -p sub && printf 'all:\n\t@echo $$(VERSION) >v\n' >sub/Makefile && $(MAKE) --no-print-directory -C sub VERSION=$(VERSION)
fail: ; @false
clean: ; @rm -f *.out
X
make -s -j2 && make -s -q && touch 4.in && make -s && cat sub/v 6.out
make -s fail 2>/dev/null || make -s none 2>/dev/null || make -f none 2>/dev/null || true
make -n clean >/dev/null && make -s clean && make -s -j -l 2 --output-sync
echo ok

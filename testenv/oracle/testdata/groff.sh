# groff: a line of processes, with tables, equations and macros looked for in many places.
set -e
cat >page.1 <<'X'
.TH PAGE 1
.SH NAME
page \- has a table
.TS
l l.
a	b
.TE
.EQ
x = y sup 2
.EN
.so /none
X
groff -t -e -s -man -Tutf8 page.1 >text 2>/dev/null; grep -c page text
groff -man -Tascii page.1 2>/dev/null | wc -l; groff -ms -Tlatin1 page.1 >/dev/null 2>&1 || true
soelim page.1 >/dev/null 2>&1 || true; tbl page.1 | eqn -Tutf8 | nroff -man 2>/dev/null | tail -n 1
groff -Tnone page.1 2>/dev/null || troff -mnone page.1 >/dev/null 2>&1 || true
echo ok

# gnuplot: fonts, terminals that are libraries, data from files and from commands.
set -e
seq 60 | awk '{ print $1, $1 ^ 2 }' >data
for t in svg dumb pngcairo pdfcairo png postscript; do
	gnuplot -e "set terminal $t; set output 'plot.$t'; plot 'data' using 1:2 with lines, '< sort -rn data' with points, sin(x)" 2>/dev/null || true
done
ls plot.*
printf 'load "none"\n' | gnuplot 2>/dev/null || true
printf 'f(x) = a * x ** 2\nfit f(x) "data" via a\nset print "fitted"\nprint a\nsystem("cat fitted")\nset table "t"\nplot f(x)\n' | gnuplot 2>/dev/null
[ -s t ] && [ -s fit.log ]
echo ok

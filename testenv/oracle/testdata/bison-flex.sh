# bison, flex and m4, which one runs for the other.
set -e
cat >c.y <<'X'
%{
#include <stdio.h>
int yylex(void);
void yyerror(const char *s) { fprintf(stderr, "%s\n", s); }
%}
%token NUM
%left '+'
%left '*'
%%
input: | input e '\n' { printf("%d\n", $2); };
e: NUM | e '+' e { $$ = $1 + $3; } | e '*' e { $$ = $1 * $3; };
%%
int main(void) { return yyparse(); }
X
cat >c.l <<'X'
%{
#include <stdlib.h>
#include "c.tab.h"
%}
%option noyywrap
%%
[0-9]+ { yylval = atoi(yytext); return NUM; }
[ \t] ;
.|\n { return yytext[0]; }
X
bison -d -v c.y && flex c.l && gcc c.tab.c lex.yy.c -o calc 2>/dev/null && echo '1+2*3' | ./calc
flex -d -o d.c c.l && bison none.y 2>/dev/null || true
cat >t.m4 <<'X'
define(`greet', `hello $1')dnl
greet(`m4')
esyscmd(`cat /etc/hostname')dnl
sinclude(`none.m4')dnl
include(`part.m4')dnl
syscmd(`ls /none 2>/dev/null')dnl
X
echo 'greet(included)' >part.m4; m4 t.m4 && m4 -F frozen t.m4 >/dev/null && echo 'greet(thawed)' | m4 -R frozen && m4 none.m4 2>/dev/null || true
echo ok

# sqlite3: journals of each kind, two processes on one database, import, export, attachment.
set -e
seq 500 | sed 's/$/,name/' >rows.csv
for mode in delete truncate persist wal memory; do
	sqlite3 $mode.db "pragma journal_mode=$mode;" 'create table t(n integer primary key, s text);' '.mode csv' '.import rows.csv t' 'begin; update t set s = n * 2; commit;' 'select sum(n) from t;'
done
sqlite3 wal.db "attach 'delete.db' as d; insert into t select n + 1000, s from d.t; select count(*) from t;"
sqlite3 wal.db '.backup copy.db' '.dump' | sqlite3 restored.db && sqlite3 restored.db 'pragma integrity_check; vacuum;'
for i in 1 2 3; do sqlite3 -cmd '.timeout 20000' delete.db "begin immediate; insert into t(s) values($i); commit;" & done; wait
sqlite3 delete.db '.output out' 'select * from t limit 3;' '.shell cat out' "select writefile('written', 'x'), length(readfile('rows.csv'));"
sqlite3 'file:/none/x.db?mode=ro' 'select 1 from t' 2>/dev/null || true
sqlite3 :memory: 'create temp table big as with recursive c(n) as (select 1 union all select n + 1 from c where n < 50000) select n, hex(n) h from c; select count(*) from (select h from big order by h);'
echo ok

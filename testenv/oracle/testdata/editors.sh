# vim in its silent mode, with a swap file, backups and filters; and ed.
set -e
seq 200 >n
vim.tiny -Nu NONE -es -c '%s/^1/one/' -c 'w! copy' -c 'set backup backupext=.old' -c 'wq' n </dev/null || true
head -n 1 copy n; ls n.old >/dev/null 2>&1 || true
vim.tiny -Nu NONE -es -c 'r !sort -rn copy' -c '%!tac' -c 'r /none' -c 'w filtered' -c 'q!' </dev/null || true
wc -l <filtered
vim.tiny -Nu NONE -es -c 'set undofile undodir=.' -c 'normal dd' -c 'wq' copy </dev/null || true
printf 'source /none\nedit copy\n%%d\nput =42\nwq\n' >script.vim; vim.tiny -Nu NONE -es -S script.vim </dev/null || true
printf '1,10d\n$a\nlast\n.\nw edited\nr !echo from a shell\n1,3p\nE none\nQ\n' | ed -s filtered || true
tail -n 1 edited
echo ok

# Clients of the shell.
try() { local name=$1; shift; if out=$("$@" 2>/scratch/err); then echo "$name $out"; else echo "$name failed"; fi; }
late() { local began=$SECONDS; "$@" >/dev/null 2>&1; (($? != 0 && SECONDS - began < 3)) && echo "$1 refused at once"; }
for url in https://api.example/ http://api.example/ https://key.example/; do
    try "curl $url" curl -sS --fail --max-time 20 "$url"
    try "wget $url" wget -q -O - --timeout=20 --tries=1 --ca-certificate="$SSL_CERT_FILE" "$url"
done
try "curl http2" curl -sS --fail --http2 --max-time 20 -o /dev/null -w '%{http_version}' https://key.example/
try "curl upload" curl -sS --fail --max-time 60 -T /usr/bin/openssl -o /dev/null -w '%{http_code}' https://api.example/upload
late curl -sS --max-time 20 https://other.example/
late wget -q -O - --timeout=20 --tries=1 https://other.example/
late git ls-remote https://other.example/repo.git
late psql "host=other.example user=test dbname=test connect_timeout=20" -c 'select 1'
try "git" git clone -q https://api.example/repo.git /scratch/repo
cat /scratch/repo/file
try "psql" psql "host=db.example user=test dbname=test sslmode=require connect_timeout=20" -tAc 'select 1'

# What Bash has beyond a POSIX shell.
set -euo pipefail
same() { [[ "$2" == "$3" ]] || { echo "$1: got '$2', want '$3'"; exit 1; }; }

same process-substitution "$(diff <(seq 3) <(seq 4) || true)" $'3a4\n> 4'
exec 5> >(cat > substituted); echo out >&5; exec 5>&-
for _ in {1..50}; do [[ -s substituted ]] && break; sleep 0.05; done
same output-substitution "$(< substituted)" out
same here-string "$(tr a-z A-Z <<< hello)" HELLO
declare -A map=([a]=1 [b]=2)
same associative "${#map[@]}" 2
mapfile -t lines < <(seq 5)
same mapfile "${lines[*]}" "1 2 3 4 5"
coproc cat
echo through >&"${COPROC[1]}"
read -r -u "${COPROC[0]}" line
same coprocess "$line" through
pids=(); for i in {1..20}; do (exit "$((i % 2))") & pids+=($!); done
failed=0; for p in "${pids[@]}"; do wait "$p" || failed=$((failed + 1)); done
same background "$failed" 10
set +e; false | true; same pipestatus "${PIPESTATUS[*]}" "1 0"; set -e
same regex "$([[ v1.22 =~ ^v([0-9]+)\.([0-9]+)$ ]] && echo "${BASH_REMATCH[2]}")" 22
if (echo > /dev/tcp/127.0.0.1/9) 2> /dev/null; then echo "a closed port answered"; exit 1; fi
same time "$({ time true; } 2>&1 | grep -c real)" 1
echo ok

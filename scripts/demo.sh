#!/bin/bash
# The demo: a model's honest script and an injected one, each in a box of its own, and what
# Proctor says about them.
#
# It uses a supervisor of its own, with its state in build/demo, and stops it at the end.
# What stays is build/ (so that the next time is faster) and nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

demo=$root/build/demo
# One per source tree, short because unix socket paths are, and the same each time, so that
# the next start finds what a killed one left.
sum=$(pwd -P | cksum | cut -d' ' -f1)
run_dir=/run/proctor-demo-$(printf '%06x' $((sum & 0xffffff)))
if [[ ${1:-} == --run-dir ]]; then
    echo "$run_dir"
    exit
fi

proctor=$root/bin/proctor
socket=$run_dir/socket
log=$demo/serve.log
data=$root/examples/data/seattle-weather.csv
server=

if ((EUID != 0)); then
    echo "demo: the supervisor needs root: run 'sudo make demo'" >&2
    exit 1
fi

title() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
[[ -t 1 ]] || title() { printf '\n== %s\n' "$*"; }

stop() {
    [[ -n $server ]] || return 0
    local pid=$server
    server=
    kill -TERM "$pid" 2>/dev/null || true
    for _ in {1..300}; do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    if kill -0 "$pid" 2>/dev/null; then
        echo "demo: the supervisor (pid $pid) did not stop within 30 s; killing it" >&2
        kill -KILL "$pid" 2>/dev/null || true
    fi
    local status=0
    wait "$pid" || status=$?
    exec 3>&-
    # Empty sockets' and bundles' folders; what is still mounted there would be a fault to see.
    if grep -F " $run_dir" /proc/self/mountinfo >&2; then
        echo "demo: the supervisor left these mounts in $run_dir" >&2
        return 1
    fi
    rm -rf --one-file-system "$run_dir"
    # Files in build/ belong to whoever called sudo, but for the supervisor's own.
    if [[ -n ${SUDO_UID:-} ]]; then
        chown "$SUDO_UID:${SUDO_GID:-$SUDO_UID}" "$demo"
        find "$demo" -mindepth 1 -path "$demo/state" -prune -o -exec chown -h "$SUDO_UID:${SUDO_GID:-$SUDO_UID}" {} +
    fi
    return "$status"
}
trap 'stop || true' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

p() { "$proctor" --socket "$socket" "$@"; }

# What the supervisor has said since the last call.
relay_log() {
    local line
    while IFS= read -r line <&3; do printf '  supervisor: %s\n' "$line"; done
}

mkdir -p "$demo"
exec 4>"$demo/lock"
flock -n 4 || { echo "demo: another one is running in $demo" >&2; exit 1; }
rm -rf --one-file-system "$demo/outputs"
mkdir "$demo/outputs"
: >"$log"

title "Starting a supervisor (state in build/demo/state; the first time it imports the images)"
"$proctor" serve --state-dir "$demo/state" --run-dir "$run_dir" --socket "$socket" \
    --images "$root/build/images" >"$log" 2>&1 </dev/null 4>&- &
server=$!
exec 3<"$log"
deadline=$((SECONDS + 180))
until p status >/dev/null 2>&1; do
    relay_log
    if ! kill -0 "$server" 2>/dev/null; then
        server=
        relay_log
        echo "demo: the supervisor ended while starting; its log is build/demo/serve.log" >&2
        exit 1
    fi
    if ((SECONDS > deadline)); then
        echo "demo: the supervisor was not ready within 180 s; its log is build/demo/serve.log" >&2
        exit 1
    fi
    sleep 0.1
done
relay_log

# Runs one script and keeps its verdict. The script's failure is a result here, not an error;
# 125 means that Proctor could not run it.
try() {
    local name=$1 status=0
    shift
    p run --json "$@" >"$demo/$name.json" || status=$?
    if ((status == 125)) || [[ ! -s $demo/$name.json ]]; then
        cat "$demo/$name.json" >&2
        echo "demo: $name could not be run (exit code $status); the supervisor's log is build/demo/serve.log" >&2
        exit 1
    fi
}

# What the audit has of a run, without the hundreds of files that an interpreter opens.
audit_lines() {
    local run
    run=$(scripts/show-verdict --run "$demo/$1.json")
    p audit show "$run" >"$demo/$1.audit.txt"
    echo "proctor audit show $run, $(wc -l <"$demo/$1.audit.txt") lines in build/demo/$1.audit.txt, of which:"
    grep -E "$2" "$demo/$1.audit.txt" | sed 's/^/  /' || true
}

title "1. An honest analysis: examples/weather.py with seattle-weather.csv (1,461 days)"
try weather --input "$data" --output-dir "$demo/outputs" examples/weather.py
scripts/show-verdict "$demo/weather.json"
plot=$demo/outputs/plot.png
[[ -s $plot ]] || { echo "demo: weather.py left no plot" >&2; exit 1; }
echo "The plot: ${plot#"$root"/} ($(stat -c %s "$plot") bytes)"

title "2. The same data, an injected script: examples/exfiltrate.py"
try exfiltrate --input "$data" examples/exfiltrate.py
scripts/show-verdict "$demo/exfiltrate.json"

title "What the kernel saw of the first"
audit_lines weather ' exec |seattle-weather\.csv|plot\.png| end '

title "What the kernel saw of the second"
audit_lines exfiltrate ' exec |seattle-weather\.csv|connect|send| query | end '

title "Stopping the supervisor"
stop
echo "Stopped. Verdicts, audit and plot stay in build/demo."

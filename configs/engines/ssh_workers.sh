#!/usr/bin/env bash
# One worker on each host of a list, over plain ssh. They outlive this shell and the connection.
#
#   ssh_workers.sh HOSTS CONFIG [words for `splatbatch work`, such as --for 10h]
#   ssh_workers.sh HOSTS STORE [words, such as --idle 10m]
#
# HOSTS: a file, one host a line as ssh takes it (user@host, a name of ~/.ssh/config), # begins a comment.
# All hosts see the folder of CONFIG under the same path. Of a STORE (ssh://host/path, s3://bucket/prefix) they need nothing
# but its credentials: an agent or keys of their own, AWS_… in ~/.ssh/environment or a role. None is sent by this script.
# SPLATBATCH names the program there, if it is not on the PATH. A worker of a store ends by itself once nothing is due.
# Called again it starts one more worker on each host. `splatbatch status --watch` shows them, `splatbatch cancel` ends them.
# Exit code: 0 all have begun; 2 this call is wrong; 5 some host was not reached, or its worker ended at once: its words are printed.
set -euo pipefail
if [ $# -lt 2 ]; then sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; fi
hosts=$1 config=$2; shift 2
[ -r "$hosts" ] || { echo "$hosts: no such file: it lists the hosts, one a line" >&2; exit 2; }
case $config in
  *://*) folder=. what=("$config") ;;
  *) config=$(realpath -m "$config") folder=$(dirname "$config") what=(--config "$config")
     [ -r "$config" ] || { echo "$config: no such file: name the YAML of the batch, or a store" >&2; exit 2; } ;;
esac
mapfile -t names < <(sed 's/#.*//' "$hosts" | awk 'NF {print $1}')
[ "${#names[@]}" -gt 0 ] || { echo "$hosts: names no host" >&2; exit 2; }

# Run on the host: starts the worker in a session of its own and stays until it has said something and still runs 3 s later,
# a minute at most: a busy host may need half of that to begin.
read -r -d '' there <<'REMOTE' || true
folder=$1 log=$2; shift 2
cd "$folder" || { echo "this host does not see $folder" >&2; exit 5; }
touch "$log"
before=$(wc -c <"$log") left=60
setsid nohup "$@" </dev/null >>"$log" 2>&1 &
pid=$!
while [ "$left" -gt 0 ]; do
  sleep 1
  left=$((left - 1))
  kill -0 "$pid" 2>/dev/null || { code=0; wait "$pid" || code=$?; tail -n 5 "$log" >&2; exit "$code"; }
  [ "$left" -le 3 ] || [ "$(wc -c <"$log")" = "$before" ] || left=3
done
REMOTE

quoted() {  # WORD...: as any shell takes them; %q writes $'...' where a letter is not ASCII, which sh does not know
  local word; for word; do printf "'%s' " "${word//\'/\'\\\'\'}"; done
}

start() {  # HOST [WORD...]
  local host=$1 code=0 words; shift
  words=$(ssh -o BatchMode=yes -o ConnectTimeout=20 -- "$host" \
    "sh -s -- $(quoted "$folder" "work-$host.log" "${SPLATBATCH:-splatbatch}" work "${what[@]}" "$@")" \
    <<<"$there" 2>&1) || code=$?
  case $code in
    0) echo "$host: at work, or nothing was left to do; its words: $folder/work-$host.log there" ;;
    *) echo "$host: not started (exit code $code): ${words:-ssh says nothing}" >&2; return 5 ;;
  esac
}

pids=()
for host in "${names[@]}"; do start "$host" "$@" & pids+=($!); done
failed=0
for pid in "${pids[@]}"; do wait "$pid" || failed=5; done
exit "$failed"

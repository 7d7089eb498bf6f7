#!/usr/bin/env bash
# Workers on a Ray cluster, each a job of Ray's. They outlive this shell.
#
#   ray_workers.sh N CONFIG [words for `splatbatch work`, such as --for 10h]
#   ray_workers.sh N STORE [words, such as --idle 10m]
#
# N: how many, no more than have room at once: Ray drops a job that has waited 15 minutes (RAY_JOB_START_TIMEOUT_SECONDS).
# All nodes see the folder of CONFIG under the same path. Of a STORE (ssh://host/path, s3://bucket/prefix) they need
# nothing but its credentials. A worker has the environment of its node's `ray start`: none is sent by this script.
# This machine needs `ray`, of any Python: pip install 'ray[default]>=2.60,<3'. Ray's own variables say which cluster, and
# let you in: RAY_API_SERVER_ADDRESS=http://head:8265 or RAY_ADDRESS, RAY_AUTH_MODE=token, RAY_AUTH_TOKEN_PATH. Have the
# cluster demand a token: without one, whoever reaches its ports runs what he likes on every node.
# GPUS and CPUS are what Ray gives each worker, 1 and 1: leave executor.gpus at auto. SPLATBATCH names the program there,
# if it is not on the PATH.
# Called again it starts N more. `splatbatch status --watch` shows them, `ray job logs JOB` what one says, and `splatbatch
# cancel` ends all that are at work. A job that still waits begins later all the same: `ray job stop JOB` takes it back.
# `ray job stop` also ends a worker, which has RAY_JOB_STOP_WAIT_TIME_S, 60 s, to write its checkpoint: set it above
# limits.grace_s. Ray starts none again: what a stopped worker or a lost node leaves, the other workers take up.
# Exit code: 0 all are submitted; 2 this call is wrong; 5 Ray has refused a worker: its words are printed, and none follows.
set -euo pipefail
if [ $# -lt 2 ]; then sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; fi
num=$1 config=$2; shift 2
gpus=${GPUS:-1} cpus=${CPUS:-1} stop_s=${RAY_JOB_STOP_WAIT_TIME_S:-60} program=${SPLATBATCH:-splatbatch}

whole() {  # NAME VALUE LEAST
  [[ $2 =~ ^[0-9]{1,6}$ ]] && [ "$2" -ge "$3" ] || { echo "$1: $2: should be a whole number, at least $3" >&2; exit 2; }
}

last_of() {  # WORDS: what Ray says at last, without the lines of Python's traceback
  sed '/^ /d; /^$/d; /^Traceback/d; /^During/d' <<<"$1" | tail -n 2
}

whole N "$num" 1
whole GPUS "$gpus" 0
whole CPUS "$cpus" 1  # Ray runs what asks for nothing on the head, all at once
whole RAY_JOB_STOP_WAIT_TIME_S "$stop_s" 1
case $config in
  *://*) what=("$config") ;;
  *) [ -r "$config" ] || { echo "$config: no such file: name the YAML of the batch, or a store" >&2; exit 2; }
     what=(--config "$(realpath "$config")") ;;
esac
command -v ray >/dev/null || { echo "there is no ray on the PATH: pip install 'ray[default]>=2.60,<3'" >&2; exit 5; }

batch=splatbatch-$(date +%Y%m%d-%H%M%S)-$RANDOM
for ((number = 1; number <= 10#$num; number++)); do
  job=$batch-$number
  variables="{\"env_vars\": {\"SPLATBATCH_JOB\": \"$job\", \"RAY_JOB_STOP_WAIT_TIME_S\": \"$stop_s\"}}"
  code=0
  words=$(ray job submit --no-wait --submission-id "$job" --runtime-env-json "$variables" \
    --entrypoint-num-gpus "$gpus" --entrypoint-num-cpus "$cpus" \
    -- "$program" work "${what[@]}" "$@" 2>&1 </dev/null) || code=$?
  if [ "$code" != 0 ]; then
    echo "worker $number of $num: not submitted (exit code $code): $(last_of "${words:-ray says nothing}")" >&2
    exit 5
  fi
  echo "$job: submitted; its words: ray job logs $job"
done

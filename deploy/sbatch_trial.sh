#!/usr/bin/env bash
# Runs one trial of a sweep as a Slurm job, and waits for it: the launcher of `titan-train sweep` where trials queue.
#
#   titan-train sweep SWEEP.toml --max-parallel 8 \
#     --launcher 'deploy/sbatch_trial.sh {folder} --ntasks={ranks} --gpus-per-task=1 --time=4:00:00 -- {command}'
#
#   sbatch_trial.sh FOLDER [OPTIONS OF SBATCH] -- PROGRAM [ARGUMENTS]
#
# FOLDER is the trial's, on a file system that the nodes share: the job's name is its last part, the job's output goes
# to its log.txt, and slurm-job in it names the job while there is one. The exit code is the job's. The first SIGTERM
# lets the ranks save, or takes a job that waits out of the queue; the second cancels the job. The sweep itself resumes
# a trial whose job was stopped or ran out of time. A job that outlived its sweep is cancelled before the next starts.
set -uo pipefail

if (($# < 3)) || [[ " $* " != *" -- "* ]]; then
  echo "usage: sbatch_trial.sh FOLDER [OPTIONS OF SBATCH] -- PROGRAM [ARGUMENTS]" >&2
  exit 2
fi
folder=$1
shift
options=()
while [[ $1 != -- ]]; do
  options+=("$1")
  shift
done
shift
name=$(basename "$folder")
record=$folder/slurm-job
# A sweep may run in a job itself, whose variables would set the size of this one.
for variable in "${!SLURM_@}"; do [[ $variable == SLURM_CONF ]] || unset "$variable"; done

is_known() { [[ -n $(squeue --noheader --jobs="$1" --name="$name" 2>/dev/null) ]]; }
# Prints the number of the recorded job; nothing if none was submitted. "--parsable" may add the cluster's name.
recorded() { [[ ! -s $record ]] || cut -d';' -f1 "$record"; }

earlier=$(recorded)
if [[ -n $earlier ]] && is_known "$earlier"; then
  echo "sbatch_trial.sh: cancels job $earlier, which an earlier sweep left running"
  scancel --name="$name" "$earlier"
  while is_known "$earlier"; do sleep 1; done
fi

signals=0
trap 'signals=$((signals + 1))' TERM INT
export TITAN_TRAIN=$1 SBATCH_NO_REQUEUE=1
shift
# It ends with this script, however that ends: what it inherits keeps the trial's folder locked.
setpriv --pdeathsig KILL sbatch --wait --parsable --export=ALL --job-name="$name" --output="$folder/log.txt" \
  --open-mode=append "${options[@]}" "$(dirname "${BASH_SOURCE[0]}")/titan.sbatch" "$@" >"$record" &
waiting=$!

# Asks again until the job has ended: a signal is lost while a job starts, and a rank takes SIGUSR1 any number of times.
stop() {
  local job
  job=$(recorded)
  [[ -n $job ]] || return 0
  if ((signals > 1)); then
    scancel --quiet "$job"
  else
    scancel --quiet --state=PENDING "$job"
    scancel --quiet --state=RUNNING --signal=USR1 "$job"
  fi 2>/dev/null
}
while kill -0 "$waiting" 2>/dev/null; do
  if ((signals)); then stop; fi
  sleep 1
done
wait "$waiting"
code=$?
# A job that was cancelled before it ran lets sbatch end with 0.
if ((code == 0)) && scontrol show job "$(recorded)" 2>/dev/null | grep -q JobState=CANCELLED; then code=143; fi
rm -f "$record"
exit "$code"

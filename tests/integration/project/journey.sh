#!/usr/bin/env bash
# Does what a newcomer does with an installed titan-train, on the PATH: journey.sh EMPTY_FOLDER. Ends with "journey: done".
# The tests run it in environments that have torch and nothing of this repository.
#
#   TORCHRUN="python -m torch.distributed.run"   how torchrun is called, if not by its name
#   WITHOUT_MPI=1                                the machine has no mpirun
set -euo pipefail
cd "$1"
short=(--training.steps 2 --training.local_batch_size 1 --training.seq_len 64 --metrics.log_freq 1)

# rows FOLDER COUNT: fails unless a run has logged this many steps.
rows() {
  local found
  found=$(wc -l <"$1/metrics.jsonl")
  ((found == $2)) || { echo "journey: $1 has $found steps, expected $2" >&2; exit 1; }
}

titan-train --version
titan-train init >job.toml
titan-train --config job.toml --dry-run --world-size 2 >/dev/null
titan-train --nproc 2 --config job.toml "${short[@]}" --job.dump_folder run --checkpoint.enable \
  --checkpoint.interval 2 --checkpoint.last_save_model_only=false
rows run 2

read -ra torchrun <<<"${TORCHRUN:-torchrun}"
"${torchrun[@]}" --no-python --nproc-per-node 2 titan-train --config job.toml "${short[@]}" --job.dump_folder torchrun
rows torchrun 2
if [[ -z ${WITHOUT_MPI:-} ]]; then
  mpirun --allow-run-as-root --oversubscribe -n 2 titan-train --config job.toml "${short[@]}" --job.dump_folder mpirun
  rows mpirun 2
fi

# Resumes two ranks' checkpoint with one.
titan-train --config job.toml "${short[@]}" --training.steps 4 --job.dump_folder run --checkpoint.enable \
  --checkpoint.interval 2 --checkpoint.last_save_model_only=false
rows run 4
titan-train inspect run --verify >/dev/null
titan-train convert run exported
[[ -s exported/model.safetensors && -s exported/config.json ]]
titan-train generate --checkpoint run --prompt 'def ' --max-tokens 4 >/dev/null
sed -i 's/^steps = [0-9]*/steps = 2/; s/^seq_len = [0-9]*/seq_len = 64/' job.toml
titan-train sweep --grid optimizer.lr=1e-3,4e-3 --config job.toml --folder sweep
[[ -s sweep/report.html ]]

titan-train init --examples examples
cd examples
titan-train --nproc 2 --config configs/debug.toml --training.steps 1 --job.dump_folder ../debug
rows ../debug 1
[[ -x deploy/sbatch_trial.sh && -x deploy/ray_job.py && -s deploy/trainjob.yaml && -s deploy/titan.sbatch ]]
echo 'journey: done'

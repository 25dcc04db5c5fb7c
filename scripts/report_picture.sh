#!/usr/bin/env bash
# Makes docs/report.png again, from two real runs of a small model: scripts/report_picture.sh [PROGRAM]. Needs
# Chromium and the corpus of scripts/setup.sh; takes a minute.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=${1:-build/release/titan-train}
browser=$(command -v chromium-headless-shell chromium chromium-browser google-chrome | head -n 1) || {
  echo "report_picture.sh: there is no Chromium in PATH (Debian: apt-get install chromium-headless-shell)" >&2
  exit 2
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# A run with everything that a report shows besides curves: validation, checkpoints, a stop by a signal and a resume.
train() {
  "$program" --config configs/debug.toml --job.dump_folder "$folder/$1" --job.description "two layers on text" \
    --model.args.dim 64 --model.args.n_layers 2 --model.args.n_heads 4 --training.seq_len 64 --training.steps 800 \
    --validation.prompts "" --validation.enable --validation.dataset text --validation.dataset_path assets/corpus/validation \
    --validation.seq_len 64 --validation.freq 80 --validation.steps 4 --checkpoint.interval 160 "${@:2}" >"$folder/$1.log"
}
train lr-4e-3 &
first=$!
until [[ $(cat "$folder/lr-4e-3/metrics.jsonl" 2>/dev/null | wc -l) -gt 30 ]]; do
  kill -0 $first || exit 1
  sleep 0.1
done
pkill -TERM -P $first || true
wait $first || [[ $? -eq 75 ]]
train lr-4e-3
train lr-1e-3 --optimizer.lr 1e-3

"$program" report "$folder" --output "$folder/report.html"
"$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$folder/browser" --window-size=1280,880 \
  --screenshot=docs/report.png "file://$folder/report.html#smooth=0.6&theme=light" 2>/dev/null
echo "docs/report.png: $(stat -c %s docs/report.png) bytes"

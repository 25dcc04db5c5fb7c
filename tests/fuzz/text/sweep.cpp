#include "lab/sweep/plan/plan.h"
#include "tests/fuzz/support.h"
#include "tests/fuzz/targets.h"

namespace titan::fuzz {
namespace {

constexpr std::size_t kPlannedTrials = 12;  // to plan more takes long and finds nothing else

const std::filesystem::path& job_file() {
  static const MemoryFolder folder;
  static const std::filesystem::path file = [&] {
    write_over(folder.path() / "job.toml", R"([model]
name = "llama3"
[training]
steps = 20
[metrics]
log_freq = 1
[checkpoint]
enable = true
[validation]
enable = true
)");
    return folder.path() / "job.toml";
  }();
  return file;
}

}  // namespace

bool run_sweep(std::string_view input) {
  return accepts([&] {
    sweep::SweepSpec spec = sweep::read_spec_text(input, "/nowhere/fuzz.toml");
    const auto trials = sweep::expand(spec);
    if (trials.size() > kPlannedTrials) return;
    spec.base = job_file();
    spec.folder = job_file().parent_path() / "sweep";
    accepts([&] { sweep::make_plan(spec); });
  });
}

Seeds sweep_seeds() {
  return {{"grid", R"([sweep]
name = "lr"
base = "job.toml"
objective = "validation.loss"
reduction = "mean"
window = 4
max_parallel = 2
nproc = 1
seed = 3
[sweep.grid]
"optimizer.lr" = [1e-3, 3e-4]
"training.seq_len" = [64, 128]
[sweep.zip]
"optimizer.eps" = [1e-8, 1e-6]
"optimizer.beta1" = [0.9, 0.8]
)"},
          {"random", R"([sweep]
base = "job.toml"
objective = "loss"
retries = 1
timeout_minutes = 1.5
[sweep.random]
num_trials = 4
"optimizer.weight_decay" = {uniform = [0.0, 0.3]}
"optimizer.lr" = {log_uniform = [1e-5, 1e-2]}
"training.local_batch_size" = {int_uniform = [1, 8]}
"lr_scheduler.decay_type" = {choice = ["linear", "cosine"]}
[sweep.asha]
min_steps = 2
reduction_factor = 2
)"},
          {"list", R"([sweep]
base = "job.toml"
[[sweep.list]]
"optimizer.lr" = 1e-3
[[sweep.list]]
"optimizer.lr" = 1e-4
"training.steps" = 5
)"}};
}

}  // namespace titan::fuzz

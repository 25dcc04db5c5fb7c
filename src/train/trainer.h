// The train loop. Everything around it is a part that this class wires together; setup.h builds them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpointer.h"
#include "config/job_config.h"
#include "contract/batch_source.h"
#include "contract/prompts.h"
#include "contract/train_contract.h"
#include "distributed/parallel_dims.h"
#include "metrics/metrics_processor.h"
#include "optim/adamw.h"
#include "optim/grad_scaler.h"
#include "optim/lr_schedule.h"
#include "train/observers/prompt_samples.h"
#include "train/observers/validator.h"
#include "train/step/forward_backward.h"
#include "train/train_state.h"

namespace titan::train {

class Trainer {
 public:
  // Builds and initializes everything. Collective. `data` yields this data-parallel rank's batches. `held_out`: what
  // Validator takes; null without [validation]. `prompts`: those of validation.prompts.
  Trainer(const config::JobConfig& config, dist::World& world, const dist::Meshes& meshes, const TrainSpec& spec,
          std::unique_ptr<BatchSource> data, std::unique_ptr<BatchSource> held_out, Prompts prompts);

  enum class End {
    kCompleted,       // also where nothing was left to do
    kStopped,         // by a signal, early; a checkpoint holds the state
    kStoppedUnsaved,  // the same with checkpoints off
    kDiverged,        // training.on_nan = "stop", and the gradients were no numbers any more
  };
  // Loads a checkpoint if there is one, then trains to training.steps. Collective.
  End train();

  std::int64_t finished_steps() const { return state_.step; }

 private:
  // What one step leaves behind, on the device; nothing is read back before a step is logged.
  struct StepOutput {
    at::Tensor loss;        // 0-d: this rank's sum of losses over the global number of valid tokens
    at::Tensor grad_norm;   // 0-d, of the whole gradient, before clipping
    at::Tensor grad_scale;  // 0-d: what this step's loss was multiplied by; undefined without float16
    double lr = 0;
    std::int64_t local_valid_tokens = 0;
    std::int64_t global_valid_tokens = 0;
  };
  struct StepData {
    std::vector<Batch> microbatches;
    std::int64_t local_valid_tokens = 0;
    std::int64_t global_valid_tokens = 0;
    bool stop = false;      // some rank was asked to stop
    bool save_due = false;  // checkpoint.interval_minutes have passed on some rank
  };

  StepData fetch_step_data();
  StepOutput train_step(const StepData& data);
  void log_step(const StepOutput& output);
  bool has_diverged(const StepData& data, const StepOutput& output);
  End stop_diverged(const StepOutput& output);
  void after_first_step();
  void attach_sinks(std::int64_t finished_steps);
  void announce_start() const;
  void announce_end() const;
  bool has_nothing_to_do(std::int64_t finished_steps) const;
  End stop_early(bool saved);

  const config::JobConfig& config_;
  dist::World& world_;
  const dist::Meshes& meshes_;
  metrics::MetricsProcessor metrics_;
  std::unique_ptr<BatchSource> data_;
  std::int64_t accumulation_steps_;
  std::uint64_t seed_;
  std::unique_ptr<LanguageModel> model_;
  std::unique_ptr<ForwardBackward> forward_backward_;
  optim::AdamW optimizer_;
  optim::LrSchedule schedule_;
  std::optional<optim::GradScaler> grad_scaler_;  // with float16
  std::string last_loss_;                         // of the last logged step, for the end
  bool warned_of_nan_ = false;
  RunRecord record_;
  TrainState state_;
  checkpoint::GroupRanks checkpoint_ranks_;
  checkpoint::GroupRanks background_ranks_;
  std::optional<PromptSamples> samples_;  // with validation.prompts
  std::optional<Validator> validator_;    // with [validation]; before the checkpointer, whose thread asks it
  checkpoint::Checkpointer checkpointer_;
};

}  // namespace titan::train

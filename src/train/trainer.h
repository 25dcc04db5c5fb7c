// The train loop: fetch a step's data, take the step, show it to the observers. Everything around it is a part that
// run_parts.h puts together.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "checkpoint/checkpointer.h"
#include "config/job_config.h"
#include "contract/batch_source.h"
#include "contract/prompts.h"
#include "contract/tokenizer_facts.h"
#include "contract/train_contract.h"
#include "distributed/parallel_dims.h"
#include "metrics/metrics_processor.h"
#include "optim/adamw.h"
#include "optim/grad_scaler.h"
#include "optim/lr_schedule.h"
#include "train/prompt_samples.h"
#include "train/train_state.h"
#include "train/validator.h"

namespace titan::train {

class Trainer {
 public:
  // Builds and initializes everything. Collective. `tokenizer`: of the run. `data` yields this data-parallel rank's
  // batches. `held_out`: what Validator takes; null without [validation]. `prompts`: those of validation.prompts.
  Trainer(const config::JobConfig& config, dist::World& world, const dist::Meshes& meshes, const TrainSpec& spec,
          const TokenizerFacts& tokenizer, std::unique_ptr<BatchSource> data, std::unique_ptr<BatchSource> held_out,
          Prompts prompts);

  // Loads a checkpoint if there is one, then trains to training.steps. Collective.
  End train();

  std::int64_t finished_steps() const { return run_.state->step; }

 private:
  bool start();
  bool has_nothing_to_do(std::int64_t finished_steps) const;
  void attach_sinks();
  void announce_start() const;
  StepInput fetch();
  std::optional<End> show(const FinishedStep& step);
  End finish(End end);
  void announce_end() const;

  const config::JobConfig& config_;
  dist::World& world_;
  const dist::Meshes& meshes_;
  metrics::MetricsProcessor metrics_;
  std::unique_ptr<BatchSource> data_;
  dist::RunShape shape_;
  std::uint64_t seed_;
  std::unique_ptr<LanguageModel> model_;
  optim::AdamW optimizer_;
  optim::LrSchedule schedule_;
  std::optional<optim::GradScaler> grad_scaler_;  // with float16
  std::string last_loss_;                         // of the last logged step, for the end
  int small_grad_scales_ = 0;                     // logged in a row
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

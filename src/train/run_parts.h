// The parts of a run, and the function that builds them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/process/file_lock.h"
#include "checkpoint/checkpointer.h"
#include "config/job_config.h"
#include "contract/batch_source.h"
#include "contract/evaluation_task.h"
#include "contract/train_contract.h"
#include "distributed/parallel_dims.h"
#include "facts/prompts.h"
#include "facts/tokenizer_facts.h"
#include "metrics/event_log.h"
#include "metrics/metrics_processor.h"
#include "optim/grad_scaler.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"
#include "train/guests/prompt_samples.h"
#include "train/guests/scores/task_evaluation.h"
#include "train/guests/validator.h"
#include "train/rollback.h"
#include "train/run_folder.h"
#include "train/run_record.h"
#include "train/step/forward_backward.h"
#include "train/step/run_parameters.h"
#include "train/step/step_guest.h"
#include "train/step/train_step.h"
#include "train/train_state.h"

namespace titan::train {

// Inputs of a run. The references must outlive it.
struct RunInputs {
  const config::JobConfig& config;
  dist::World& world;
  const dist::Meshes& meshes;
  const TrainSpec& spec;
  const TokenizerFacts& tokenizer;         // the run's tokenizer
  std::unique_ptr<BatchSource> data;       // this data-parallel rank's batches
  std::unique_ptr<BatchSource> held_out;   // for Validator; null without [validation]
  Prompts prompts;                         // from validation.prompts
  std::vector<EvaluationTask> tasks = {};  // from evaluation.tasks
  DataFacts data_facts = {};               // about the training data and the held-out data
  // The result of lock_run_folder(); null on ranks other than 0.
  std::shared_ptr<const FileLock> folder_lock = {};
  // The result of lock_checkpoint_folder(); null on ranks other than 0.
  std::shared_ptr<CheckpointFolderLock> checkpoint_lock = {};
};

// The parts of a run, in the order in which build_run() makes them. They refer to each other, and are destroyed in
// reverse order.
struct RunParts {
  RunParts(const config::JobConfig& config_, dist::World& world_, const dist::Meshes& meshes_)
      : config(config_), world(world_), meshes(meshes_) {}

  // Returns the model to call with tokens, on every rank alike.
  LanguageModel& whole_model() { return all_stages ? *all_stages : *model; }

  const config::JobConfig& config;
  dist::World& world;
  const dist::Meshes& meshes;
  std::unique_ptr<metrics::MetricsProcessor> metrics;
  std::unique_ptr<metrics::EventLog> events;
  std::unique_ptr<BatchSource> data;
  dist::RunShape shape;
  std::uint64_t seed = 0;
  std::unique_ptr<LanguageModel> model;
  std::unique_ptr<LanguageModel> all_stages;  // BuiltModel::all_stages
  std::unique_ptr<ForwardBackward> forward_backward;
  std::unique_ptr<RunParameters> parameters;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<optim::LrSchedule> schedule;
  std::unique_ptr<optim::GradScaler> grad_scaler;  // null without float16
  std::unique_ptr<RunRecord> record;
  std::unique_ptr<TrainState> state;
  std::unique_ptr<checkpoint::GroupRanks> checkpoint_ranks;
  std::unique_ptr<checkpoint::GroupRanks> background_ranks;
  std::unique_ptr<PromptSamples> samples;  // null without validation.prompts
  std::unique_ptr<Validator> validator;    // null without [validation]; outlives the checkpointer, whose thread uses it
  std::unique_ptr<checkpoint::Checkpointer> checkpointer;
  std::unique_ptr<Rollback> rollback;
  std::unique_ptr<TrainStep> step;
  StepGuests guests;
  TaskEvaluation* evaluation = nullptr;  // one of the guests; null without evaluation.tasks
};

// Builds everything except the weights, which come from a checkpoint or from draw_weights(), and the sinks of the
// metrics, which need the step that the run resumes from. Collective. Throws ConfigError, DataError if there is too
// little held-out data, InternalError.
RunParts build_run(RunInputs inputs);

}  // namespace titan::train

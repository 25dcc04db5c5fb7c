#include "apps/train/open_data.h"

#include <spdlog/spdlog.h>

#include <string>

#include "base/env.h"
#include "base/error.h"
#include "config/keys/datasets.h"
#include "config/keys/values/evaluation_tasks.h"
#include "data/dataset_kinds.h"
#include "data/io/file_facts.h"
#include "data/open.h"
#include "data/tasks/open_task.h"

namespace titan {
namespace {

data::DataOptions data_options(const CheckedInput& input, const dist::DeviceMesh& batch_mesh) {
  data::DataOptions options;
  options.chat = chat_dataset(input.config, input.tokenizer_facts.fingerprint);
  options.dp_rank = batch_mesh.local_rank("batch");
  options.dp_size = batch_mesh.size();
  options.pin_memory = !batch_mesh.device().is_cpu();
  return options;
}

// Opens the data that the keys in `table` name.
std::unique_ptr<BatchSource> open_data(const std::string& table, const CheckedInput& input,
                                       const data::DataOptions& options) {
  try {
    return data::make_batch_source(options, input.tokenizer);
  } catch (const DataError& error) {
    const std::string key = table + (options.dataset_mix.empty() ? ".dataset_path" : ".dataset_mix");
    throw DataError(config::with_location(config::below_key(key, error), input.origins));
  } catch (const ConfigError& error) {
    throw ConfigError(config::with_location(error, input.origins));
  }
}

// Returns a text that identifies the data of the keys in `table`; "" if there are none.
std::string files_of(const std::string& table, const config::JobConfig& config) {
  std::vector<std::vector<data::FileFacts>> facts;
  for (const config::NamedDataset& dataset : config::named_datasets(config))
    if (dataset.key.starts_with(table))
      facts.push_back(data::facts_of(data::list_dataset(dataset.kind, dataset.path), dataset.path));
  return facts.empty() ? "" : data::facts_to_text(facts);
}

}  // namespace

std::unique_ptr<BatchSource> open_training_set(const CheckedInput& input, const dist::DeviceMesh& batch_mesh,
                                               const dist::World& world, const dist::RunShape& shape) {
  const auto& training = input.config.training;
  auto options = data_options(input, batch_mesh);
  options.dataset = training.dataset;
  options.dataset_path = config::dataset_path(training.dataset, training.dataset_path).value_or("");
  options.dataset_mix = training.dataset_mix;
  options.text_key = training.dataset_text_key;
  options.data_order = training.data_order;
  options.on_bad_record = training.on_bad_record;
  options.seed = input.config.debug.seed.value_or(0);
  options.local_batch_size = training.local_batch_size;
  options.seq_len = training.seq_len;
  options.accumulation_steps = shape.accumulation_steps;
  if (const auto log = get_env("TITAN_LOG_SAMPLES"); log && !log->empty()) {
    options.sample_log = *log + ".rank" + std::to_string(world.rank());
  }
  return open_data("training", input, options);
}

DataFacts facts_of_data(const CheckedInput& input, const dist::World& world) {
  DataFacts facts;
  facts.differences = data::differences_of_texts;
  if (world.rank() == 0) {
    try {
      facts.files = files_of("training.", input.config);
      facts.held_out_files = files_of("validation.", input.config);
    } catch (const std::exception& error) {
      spdlog::warn("checkpoints will not know the data again: {}", error.what());
    }
  }
  facts.files = world.group().broadcast_bytes(facts.files, 0);
  facts.held_out_files = world.group().broadcast_bytes(facts.held_out_files, 0);
  return facts;
}

std::unique_ptr<BatchSource> open_held_out_set(const CheckedInput& input, const dist::DeviceMesh& batch_mesh) {
  const auto& validation = input.config.validation;
  if (!validation.enable) return nullptr;
  const bool whole_set = validation.steps == -1;
  auto options = data_options(input, batch_mesh);
  options.dataset = validation.dataset;
  options.dataset_path = config::dataset_path(validation.dataset, validation.dataset_path).value_or("");
  options.text_key = validation.dataset_text_key;
  options.local_batch_size = validation.local_batch_size * (whole_set ? batch_mesh.size() : 1);
  options.seq_len = validation.seq_len;
  options.infinite = !whole_set;
  if (whole_set) options.dp_rank = 0, options.dp_size = 1;
  return open_data("validation", input, options);
}

std::vector<EvaluationTask> open_evaluation_tasks(const CheckedInput& input) {
  const std::string key = "evaluation.tasks";
  const auto& options = input.config.evaluation;
  try {
    std::vector<EvaluationTask> tasks;
    for (const config::TaskEntry& entry : config::parse_task_entries(options.tasks, options.num_fewshot)) {
      tasks.push_back(data::open_task(entry, *input.tokenizer, input.config.training.seq_len, options.limit));
      if (tasks.back().num_cut > 0)
        spdlog::warn("{}: {} of {} texts of {} are longer than training.seq_len = {} and lose their beginning", key,
                     tasks.back().num_cut, tasks.back().texts.size(), entry.name, input.config.training.seq_len);
    }
    return tasks;
  } catch (const DataError& error) {
    throw DataError(config::with_location(config::below_key(key, error), input.origins));
  }
}

}  // namespace titan

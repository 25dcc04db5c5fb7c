// Names of the configuration's keys that messages of this folder name.
#pragma once

#include <string>

namespace titan::pipeline {

inline constexpr const char* kDegreeKey = "parallelism.pipeline_parallel_degree";
inline constexpr const char* kScheduleKey = "parallelism.pipeline_parallel_schedule";
inline constexpr const char* kCsvKey = "parallelism.pipeline_parallel_schedule_csv";
inline constexpr const char* kMicrobatchKey = "parallelism.pipeline_parallel_microbatch_size";
inline constexpr const char* kLayersKey = "parallelism.pipeline_parallel_layers_per_stage";
inline constexpr const char* kFirstKey = "parallelism.pipeline_parallel_first_stage_less_layers";
inline constexpr const char* kLastKey = "parallelism.pipeline_parallel_last_stage_less_layers";
inline constexpr const char* kPartsKey = "parallelism.module_fqns_per_model_part";
inline constexpr const char* kBatchKey = "training.local_batch_size";

// Holds the names of a pipeline's numbers in messages, and how to change them: a command has options where a job has
// keys.
struct SizeWords {
  std::string ranks = kDegreeKey;
  std::string stages = std::string("by ") + kScheduleKey + " and " + kLayersKey;
  std::string microbatches = std::string(kBatchKey) + " / " + kMicrobatchKey;
  std::string schedule = kScheduleKey;
  // Between them stands a number.
  std::string change_stages[2] = {std::string("leave out ") + kLayersKey + ", or give " + kPartsKey + " ",
                                  " lists for each rank"};
  std::string change_microbatches[2] = {std::string("make ") + kBatchKey + " ",
                                        std::string(" times ") + kMicrobatchKey};
  std::string give_order = std::string("set ") + kCsvKey + " to a file with one";
};

}  // namespace titan::pipeline

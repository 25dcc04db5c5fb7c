// Names of the configuration's keys that messages of this folder name.
#pragma once

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

}  // namespace titan::pipeline

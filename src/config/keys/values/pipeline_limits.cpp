#include "config/keys/values/pipeline_limits.h"

#include <string>

#include "config/keys/values/fsdp_wrap.h"

namespace titan::config {

std::vector<Fault> find_wrong_pipeline(const JobConfig& config) {
  const std::string degree = "parallelism.pipeline_parallel_degree";
  const Parallelism& p = config.parallelism;
  std::vector<Fault> faults;
  if (p.pipeline_parallel_degree == 1) return faults;
  if (p.fsdp_wrap != StringList{"block"})
    faults.push_back({std::string(kFsdpWrapKey) + " needs " + degree +
                          " = 1: each module is gathered and reduced with its stage; leave it out",
                      {kFsdpWrapKey, degree}});
  return faults;
}

std::vector<std::string> warn_of_unused_pipeline_keys(const JobConfig& config) {
  const Parallelism& p = config.parallelism;
  std::vector<std::string> warnings;
  if (p.pipeline_parallel_degree > 1) return warnings;
  const auto warn_if = [&](bool is_set, const char* key) {
    if (is_set)
      warnings.push_back(std::string(key) + " is not read: parallelism.pipeline_parallel_degree is 1, so there is no " +
                         "pipeline");
  };
  warn_if(p.module_fqns_per_model_part.has_value(), "parallelism.module_fqns_per_model_part");
  warn_if(p.pipeline_parallel_layers_per_stage.has_value(), "parallelism.pipeline_parallel_layers_per_stage");
  warn_if(!p.pipeline_parallel_schedule_csv.value_or("").empty(), "parallelism.pipeline_parallel_schedule_csv");
  return warnings;
}

}  // namespace titan::config

#include "config/keys/values/lora_keys.h"

#include "config/keys/fields.h"

namespace titan::config {

std::vector<Fault> find_wrong_lora(const JobConfig& config) {
  const Lora& lora = config.lora;
  std::vector<Fault> faults;
  if (lora.rank == 0) {
    for (const char* key : {"lora.alpha", "lora.dropout", "lora.targets", "lora.base_dtype"}) {
      const Field& field = *find_field(key);
      if (field.get(config) != default_value(field))
        faults.push_back({std::string(key) +
                              " is set and lora.rank is 0, so that there are no adapters and the whole model is "
                              "trained; set lora.rank, for example to 8, or leave " +
                              key + " out",
                          {key, "lora.rank"}});
    }
    return faults;
  }
  if (lora.targets.empty())
    faults.push_back(
        {"lora.targets is empty: no layer would have an adapter, and nothing would be trained; name layers, "
         "for example [\"q_proj\", \"v_proj\"], or leave it out for all",
         {"lora.targets"}});
  if (config.parallelism.tensor_parallel_degree > 1 && config.parallelism.enable_async_tensor_parallel)
    faults.push_back(
        {"lora.rank needs parallelism.enable_async_tensor_parallel = false: products that overlap with "
         "their collectives have no adapters; set it to false",
         {"lora.rank", "parallelism.enable_async_tensor_parallel"}});
  return faults;
}

}  // namespace titan::config

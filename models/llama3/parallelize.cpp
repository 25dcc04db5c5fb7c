#include "models/llama3/parallelize.h"

#include "models/common/activation_checkpoint.h"
#include "models/common/fully_shard_options.h"
#include "models/llama3/tensor_parallel.h"
#include "parallel/fsdp/fully_shard.h"

namespace titan::models {

void parallelize_llama(Llama& model, const ParallelContext& context) {
  if (context.meshes.tp.size() > 1)
    tp::parallelize_module(model, context.meshes.tp, llama_tensor_parallel_plan(context.parallelism));
  checkpoint_blocks(model.layers(), "layers", context.activation_checkpoint);

  auto options = fully_shard_options(context);
  const ReshardRule reshard = reshard_rule(context);

  options.reshard_after_forward = reshard.blocks;
  std::vector<nn::Module*> last = {&model.norm(), &model.output()};
  if (model.is_tied()) {
    last.insert(last.begin(), &model.tok_embeddings());  // one parameter is in one group
  } else {
    fsdp::fully_shard(model.tok_embeddings(), options);
  }
  for (std::size_t i = 0; i < model.layers().size(); ++i) fsdp::fully_shard(model.layers()[i], options);
  options.reshard_after_forward = reshard.last;
  fsdp::fully_shard(last, options);
  options.reshard_after_forward = std::nullopt;
  fsdp::fully_shard(model, options);
  fsdp::set_gradient_divide_factor(model, 1.0);
}

}  // namespace titan::models

#include "generate/cached_model.h"

#include <ATen/ATen.h>

namespace titan::generate {

at::Tensor CachedCore::forward(const nn::Tensors& inputs) {
  cache_.store(layer_, inputs[1], inputs[2]);
  return cache_.size() > 0 ? cache_.attend(layer_, inputs[0]) : nn::AttentionCore::forward(inputs);
}

CachedModel::CachedModel(LanguageModel& model, std::int64_t capacity) : model_(model), cache_(capacity) {
  // This comes first: it throws for a model that has no logits.
  model.output().add_pre_hook([](nn::Module&, nn::Tensors& inputs) { inputs[0] = inputs[0].slice(1, -1); });
  for (const auto& [fqn, module] : model.named_modules())
    for (const auto& [name, child] : module->children())
      if (std::dynamic_pointer_cast<nn::AttentionCore>(child)) replaced_.push_back({module, name, child});
  for (std::size_t i = 0; i < replaced_.size(); ++i)
    replaced_[i].parent->replace_child(replaced_[i].name, std::make_shared<CachedCore>(cache_, i));
}

CachedModel::~CachedModel() {
  for (const auto& [parent, name, core] : replaced_) parent->replace_child(name, core);
  model_.output().pop_pre_hook();
}

at::Tensor CachedModel::logits(const std::vector<std::int64_t>& tokens) {
  const auto count = static_cast<std::int64_t>(tokens.size()), seen = cache_.size();
  const auto row = at::tensor(tokens, at::kLong).unsqueeze(0);
  const at::Tensor logits = model_(nn::Tensors{row, at::Tensor(), at::arange(seen, seen + count)});
  // A token that ends a document is not seen by those after it.
  std::int64_t first_visible = cache_.first_visible();
  if (const auto end = model_.document_end())
    for (std::int64_t i = 0; i < count; ++i)
      if (tokens[static_cast<std::size_t>(i)] == *end) first_visible = seen + i + 1;
  cache_.finish_call(count, first_visible);
  return logits[0][-1];
}

}  // namespace titan::generate

#include "generate/cached_model.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "nn/ops/fused_attention.h"

namespace titan::generate {
namespace {

at::Tensor to_tensor(const std::vector<std::int64_t>& values) { return at::tensor(values, at::kLong); }

}  // namespace

at::Tensor CachedCore::forward(const nn::Tensors& inputs) {
  const auto &q = inputs[0], &k = inputs[1], &v = inputs[2];
  if (rows_.front()->size() == 0) {
    rows_.front()->store(layer_, k, v);
    const nn::AttentionWithoutPlans any_length(q.device());  // each prompt has its own
    return nn::AttentionCore::forward(inputs);
  }
  std::vector<at::Tensor> attended;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const auto of_row = [&](const at::Tensor& x) { return x.narrow(2, static_cast<std::int64_t>(i), 1); };
    rows_[i]->store(layer_, of_row(k), of_row(v));
    attended.push_back(rows_[i]->attend(layer_, of_row(q)));
  }
  return attended.size() == 1 ? attended.front() : at::cat(attended, 2);
}

CachedModel::CachedModel(LanguageModel& model) : model_(model) {
  // This comes first: it throws for a model that has no logits.
  model.output().add_pre_hook([this](nn::Module&, nn::Tensors& inputs) {
    if (begins_) inputs[0] = inputs[0].slice(1, -1);
  });
  for (const auto& [fqn, module] : model.named_modules())
    for (const auto& [name, child] : module->children())
      if (std::dynamic_pointer_cast<nn::AttentionCore>(child)) replaced_.push_back({module, name, child});
  for (std::size_t i = 0; i < replaced_.size(); ++i)
    replaced_[i].parent->replace_child(replaced_[i].name, std::make_shared<CachedCore>(rows_, i));
}

CachedModel::~CachedModel() {
  for (const auto& [parent, name, core] : replaced_) parent->replace_child(name, core);
  model_.output().pop_pre_hook();
}

at::Tensor CachedModel::begin(KvCache& row, const std::vector<std::int64_t>& tokens) {
  TITAN_CHECK(row.size() == 0 && !tokens.empty(), "a row begins once, with at least one token");
  const auto count = static_cast<std::int64_t>(tokens.size());
  rows_ = {&row};
  begins_ = true;
  const at::Tensor logits = model_(nn::Tensors{to_tensor(tokens).unsqueeze(0), at::Tensor(), at::arange(count)});
  // A token that ends a document is not seen by those after it.
  std::int64_t first_visible = 0;
  if (const auto end = model_.document_end())
    for (std::int64_t i = 0; i < count; ++i)
      if (tokens[static_cast<std::size_t>(i)] == *end) first_visible = i + 1;
  row.finish_call(count, first_visible);
  return logits[0];
}

at::Tensor CachedModel::next(const std::vector<KvCache*>& rows, const std::vector<std::int64_t>& tokens) {
  TITAN_CHECK(!rows.empty() && rows.size() == tokens.size(), "each row continues by one token");
  std::vector<std::int64_t> positions;
  for (const KvCache* row : rows) {
    TITAN_CHECK(row->size() > 0, "a row that has not begun cannot continue");
    positions.push_back(row->size());
  }
  rows_ = rows;
  begins_ = false;
  const at::Tensor logits = model_(nn::Tensors{to_tensor(tokens).unsqueeze(0), at::Tensor(), to_tensor(positions)});
  const auto end = model_.document_end();
  for (std::size_t i = 0; i < rows.size(); ++i)
    rows[i]->finish_call(1, end && tokens[i] == *end ? rows[i]->size() + 1 : rows[i]->first_visible());
  return logits[0];
}

}  // namespace titan::generate

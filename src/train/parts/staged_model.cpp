#include "train/parts/staged_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "nn/documents.h"

namespace titan::train {
namespace {

// Stands for a module that another rank has.
struct Absent : nn::Module {
  at::Tensor forward(const nn::Tensors& /*inputs*/) override { throw InternalError("another rank has this module"); }
};

class StagedModel : public LanguageModel {
 public:
  StagedModel(LanguageModel& stages, StagedCall call) : call_(std::move(call)) {
    // The caller owns the model.
    child("stages", stages_, std::shared_ptr<LanguageModel>(std::shared_ptr<void>(), &stages));
  }

  void init_weights(nn::Initializer& initializer, at::Device buffer_device) override {
    stages_->init_weights(initializer, buffer_device);
  }

  nn::Module& output() override { return has(last_stage()) ? stages_->output() : absent_; }

  std::optional<std::int64_t> document_end() const override { return stages_->document_end(); }

  at::Tensor forward(const nn::Tensors& inputs) override {
    nn::Tensors all = inputs;
    all.resize(6);
    const at::Tensor tokens = inputs[0];
    // Only the first stage has tokens in which documents end.
    if (document_end() || all[3].defined()) all[3] = nn::known_documents(tokens, document_end(), all[3]);
    std::int64_t own = 0;
    for (int stage = 0; stage <= last_stage(); ++stage) {
      if (!has(stage)) continue;
      if (stage > 0 && !has(stage - 1)) {
        all[0] = at::empty({tokens.size(0), tokens.size(1) / call_.tokens_per, call_.dim},
                           at::TensorOptions(call_.dtype).device(call_.device));
        call_.group.receive(all[0], rank_of(stage - 1)).wait();
      }
      all[5] = at::scalar_tensor(own++, at::kLong);
      all[0] = call_stage(stage, all);
      if (stage < last_stage() && !has(stage + 1)) call_.group.send(all[0].contiguous(), rank_of(stage + 1)).wait();
    }
    return from_last_stage(all[0]);
  }

 private:
  int last_stage() const { return static_cast<int>(call_.rank_of_stage.size()) - 1; }
  int rank_of(int stage) const { return call_.rank_of_stage[static_cast<std::size_t>(stage)]; }
  bool has(int stage) const { return rank_of(stage) == call_.group.rank(); }

  at::Tensor call_stage(int stage, nn::Tensors inputs) {
    if (stage < last_stage()) inputs[1] = inputs[4] = at::Tensor();  // labels
    return (*stages_)(std::move(inputs));
  }

  // Returns the last stage's result on every rank. Hooks may have changed its shape.
  at::Tensor from_last_stage(const at::Tensor& result) {
    constexpr std::size_t kMostDims = 3;
    const int root = rank_of(last_stage());
    auto header = at::zeros({kMostDims + 2}, at::kLong);  // dtype, number of dims, sizes
    auto* const numbers = header.mutable_data_ptr<std::int64_t>();
    if (has(last_stage())) {
      TITAN_CHECK(result.sizes().size() <= kMostDims, "a result of more dims than logits have");
      numbers[0] = static_cast<std::int64_t>(result.scalar_type());
      numbers[1] = result.dim();
      std::ranges::copy(result.sizes(), numbers + 2);
    }
    call_.group.broadcast(header, root).wait();
    const auto sizes = at::IntArrayRef(numbers + 2, static_cast<std::size_t>(numbers[1]));
    const auto options = at::TensorOptions(static_cast<at::ScalarType>(numbers[0])).device(call_.device);
    auto out = has(last_stage()) ? result.contiguous() : at::empty(sizes, options);
    call_.group.broadcast(out, root).wait();
    return out;
  }

  StagedCall call_;
  std::shared_ptr<LanguageModel> stages_;
  Absent absent_;
};

}  // namespace

std::unique_ptr<LanguageModel> make_staged_model(LanguageModel& stages, StagedCall call) {
  return std::make_unique<StagedModel>(stages, std::move(call));
}

}  // namespace titan::train

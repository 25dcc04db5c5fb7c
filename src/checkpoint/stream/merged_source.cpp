#include "checkpoint/stream/merged_source.h"

#include <ATen/ATen.h>

#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "facts/adapter_names.h"
#include "facts/shard_spec.h"

namespace titan::checkpoint {
namespace {

// Indices of an adapter's tensors in the source.
struct Adapter {
  std::optional<std::size_t> a, b;
};

class MergedSource : public TensorSource {
 public:
  MergedSource(std::unique_ptr<TensorSource> source, double scale) : source_(std::move(source)), scale_(scale) {
    std::map<std::string, Adapter> by_layer;
    const auto& all = source_->tensors();
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::string name = without_wrappers(all[i].name);
      if (!is_model_key(name) || !is_adapter_name(name)) continue;
      Adapter& adapter = by_layer[std::string(layer_of_adapter(name))];
      (name.ends_with(kLoraA) ? adapter.a : adapter.b) = i;
    }
    if (by_layer.empty()) throw CheckpointError("there are no adapters to merge: no tensor is called *.lora_A");
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::string name = without_wrappers(all[i].name);
      if (is_model_key(name) && is_adapter_name(name)) continue;
      const bool is_weight = is_model_key(name) && name.ends_with(kWeight);
      const auto found = is_weight ? by_layer.find(name.substr(0, name.size() - kWeight.size())) : by_layer.end();
      origin_.push_back(i);
      tensors_.push_back(all[i]);
      adapters_.emplace_back();
      if (found == by_layer.end()) continue;
      check_fits(all[i], found->second);
      adapters_.back() = found->second;
      by_layer.erase(found);
    }
    if (!by_layer.empty())
      throw CheckpointError("the adapter of " + by_layer.begin()->first + " has no weight to be merged with");
  }

  at::Tensor read(std::size_t index, std::int64_t begin, std::int64_t end) override {
    at::Tensor rows = source_->read(origin_[index], begin, end);
    const Adapter& adapter = adapters_[index];
    if (!adapter.a) return rows;
    if (loaded_ != index) {
      a_ = whole(*adapter.a);
      b_ = whole(*adapter.b);
      loaded_ = index;
    }
    return at::add(rows.to(at::kFloat), b_.slice(0, begin, end).mm(a_), scale_);
  }

  bool reads_by_rows(std::size_t index) const override { return source_->reads_by_rows(origin_[index]); }
  void verify() override { source_->verify(); }

 private:
  static constexpr std::string_view kWeight = ".weight";

  at::Tensor whole(std::size_t tensor) {
    return source_->read(tensor, 0, source_->tensors()[tensor].rows()).to(at::kFloat);
  }

  void check_fits(const TensorInfo& weight, const Adapter& adapter) const {
    if (!adapter.a || !adapter.b)
      throw CheckpointError("the adapter of " + weight.name + " lacks " + (adapter.a ? kLoraB : kLoraA));
    const auto &a = source_->tensors()[*adapter.a].shape, &b = source_->tensors()[*adapter.b].shape, &w = weight.shape;
    if (a.size() == 2 && b.size() == 2 && w.size() == 2 && a[0] == b[1] && w[0] == b[0] && w[1] == a[1]) return;
    throw CheckpointError(weight.name + " is " + dist::shape_text(w) + ", and its adapter is " + dist::shape_text(b) +
                          " times " + dist::shape_text(a));
  }

  std::unique_ptr<TensorSource> source_;
  double scale_;
  std::vector<std::size_t> origin_;  // index into the source's tensors, for each of this one's
  std::vector<Adapter> adapters_;
  std::optional<std::size_t> loaded_;  // tensor whose adapter is in memory
  at::Tensor a_, b_;
};

}  // namespace

std::unique_ptr<TensorSource> merge_adapters(std::unique_ptr<TensorSource> source, double scale) {
  return std::make_unique<MergedSource>(std::move(source), scale);
}

}  // namespace titan::checkpoint

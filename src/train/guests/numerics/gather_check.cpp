#include "train/guests/numerics/gather_check.h"

#include <algorithm>
#include <utility>

namespace titan::train {

GatherCheck::GatherCheck(nn::Module& model, bool with_gradients) : model_(model), with_gradients_(with_gradients) {
  fsdp::set_memory_observer(model_, this);
}

GatherCheck::~GatherCheck() { fsdp::set_memory_observer(model_, nullptr); }

void GatherCheck::begin() {
  gathered_.clear();
  gradients_.clear();
  changed_.clear();
  is_watching_ = true;
}

std::vector<std::string> GatherCheck::end() {
  while (!gradients_.empty()) adds_gradient(*gradients_.begin()->first);
  gathered_.clear();
  is_watching_ = false;
  return std::exchange(changed_, {});
}

void GatherCheck::gathered(const fsdp::FsdpParam& param) {
  const at::Tensor& whole = param.gathered_values();
  if (!is_watching_ || whole.const_data_ptr() == param.sharded_padded().const_data_ptr()) return;
  gathered_[&param] = note(whole);
}

void GatherCheck::frees(const fsdp::FsdpParam& param) {
  compare(gathered_, param, param.gathered_values(), "gathered ");
}

void GatherCheck::adds_gradient(const fsdp::FsdpParam& param) {
  compare(gradients_, param, param.sharded_param().grad(), "gradient of ");
}

void GatherCheck::added_gradient(const fsdp::FsdpParam& param) {
  if (is_watching_ && with_gradients_) gradients_[&param] = note(param.sharded_param().grad());
}

GatherCheck::Noted GatherCheck::note(const at::Tensor& tensor) {
  return {tensor.unsafeGetTensorImpl(), bits_hash_(tensor).item<std::int64_t>()};
}

void GatherCheck::compare(NotedOf& noted, const fsdp::FsdpParam& param, const at::Tensor& tensor, const char* what) {
  const auto found = noted.find(&param);
  if (found == noted.end()) return;
  const Noted before = found->second;
  noted.erase(found);
  if (!tensor.defined() || tensor.unsafeGetTensorImpl() != before.tensor) return;
  const std::string name = what + param.fqn();
  if (note(tensor).hash != before.hash && std::ranges::count(changed_, name) == 0) changed_.push_back(name);
}

}  // namespace titan::train

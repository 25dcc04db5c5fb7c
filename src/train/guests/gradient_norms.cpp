#include "train/guests/gradient_norms.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/error.h"

namespace titan::train {
namespace {

bool is_number(std::string_view word) {
  return !word.empty() && std::ranges::all_of(word, [](unsigned char c) { return std::isdigit(c) != 0; });
}

}  // namespace

std::string_view layer_of(std::string_view fqn) {
  for (std::size_t begin = 0; begin < fqn.size();) {
    const std::size_t end = std::min(fqn.find('.', begin), fqn.size());
    if (is_number(fqn.substr(begin, end - begin))) return fqn.substr(0, end);
    begin = end + 1;
  }
  return fqn.substr(0, fqn.find('.'));
}

GradientNorms::GradientNorms(metrics::MetricsProcessor& metrics, const std::vector<std::string>& fqns)
    : metrics_(metrics) {
  std::vector<std::string_view> layers;
  for (const std::string& fqn : fqns) {
    const auto found = std::ranges::find(layers, layer_of(fqn));
    layer_.push_back(static_cast<std::size_t>(found - layers.begin()));
    if (found == layers.end()) layers.push_back(layer_of(fqn));
  }
  norms_.resize(layers.size());
}

Verdict GradientNorms::after_step(const StepView& step) {
  if (!metrics_.should_log(step.number)) return Verdict::go_on();
  const auto each = step.output.grad_norms.to(at::kCPU, at::kDouble).contiguous();
  TITAN_CHECK(each.numel() == static_cast<std::int64_t>(layer_.size()),
              std::to_string(each.numel()) + " norms of " + std::to_string(layer_.size()) + " gradients");
  std::ranges::fill(norms_, 0.0);
  for (std::size_t i = 0; i < layer_.size(); ++i) {
    const double norm = each.const_data_ptr<double>()[i];
    norms_[layer_[i]] += norm * norm;
  }
  for (double& norm : norms_) norm = std::sqrt(norm);
  metrics_.log_gradient_norms(step.number, norms_);
  return Verdict::go_on();
}

}  // namespace titan::train

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

GradientNorms::GradientNorms(metrics::MetricsProcessor& metrics, const RunParameters& parameters,
                             dist::ProcessGroup& stages)
    : metrics_(metrics), stages_(stages) {
  std::vector<std::string_view> layers;
  for (const RunParameter& parameter : parameters) {
    if (!parameter.is_trained) continue;
    const auto found = std::ranges::find(layers, layer_of(parameter.fqn));
    const auto layer = static_cast<std::size_t>(found - layers.begin());
    if (found == layers.end()) layers.push_back(layer_of(parameter.fqn));
    if (parameter.local) own_.push_back({layer, parameter.is_copy()});
  }
  num_layers_ = layers.size();
}

Verdict GradientNorms::after_step(const StepView& step) {
  if (!metrics_.should_log(step.number)) return Verdict::go_on();
  const auto each = step.output.grad_norms.to(at::kCPU, at::kDouble).contiguous();
  TITAN_CHECK(each.numel() == std::ssize(own_),
              std::to_string(each.numel()) + " norms of " + std::to_string(own_.size()) + " gradients");
  std::vector<double> norms(num_layers_);
  for (std::size_t i = 0; i < own_.size(); ++i) {
    const double norm = own_[i].is_copy ? 0.0 : each.const_data_ptr<double>()[i];
    norms[own_[i].layer] += norm * norm;
  }
  auto sums = at::from_blob(norms.data(), {std::ssize(norms)}, at::kDouble);
  stages_.all_reduce(sums, dist::ReduceOp::kSum).wait();
  for (double& norm : norms) norm = std::sqrt(norm);
  metrics_.log_gradient_norms(step.number, norms);
  return Verdict::go_on();
}

}  // namespace titan::train

#include "train/guests/numerics/nan_locator.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/process/rank_process.h"
#include "base/process/step_work.h"
#include "base/text.h"
#include "parallel/fsdp/fully_shard.h"
#include "train/guests/evaluation.h"
#include "train/guests/gradient_norms.h"

namespace titan::train {
namespace {

constexpr std::size_t kNamed = 3;  // tensors that a line names

// Returns the number of the batch's part that goes through the model now, from 0.
std::int64_t part_in_work() {
  const auto work = step_work().get().pipeline;
  return work.stage < 0 ? 0 : work.microbatch;
}

bool is_finite(const at::Tensor& tensor) {
  return !tensor.defined() || !tensor.is_floating_point() || tensor.isfinite().all().item<bool>();
}

// True if a value is below the square root of the largest one of its dtype.
bool is_small(const at::Tensor& value) {
  constexpr double kRootOfFloat16 = 256, kRootOfFloat32 = 1.8e19;  // bfloat16 has the range of float32
  return value.item<double>() < (value.scalar_type() == at::kHalf ? kRootOfFloat16 : kRootOfFloat32);
}

NotFinite count_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_floating_point() || tensor.numel() == 0) return {};
  return {tensor.isnan().sum().item<std::int64_t>(), tensor.isinf().sum().item<std::int64_t>()};
}

// Returns "3 NaN", "3 NaN and 1 infinity".
std::string text_of(const NotFinite& count) {
  std::vector<std::string> parts;
  if (count.nan > 0) parts.push_back(std::to_string(count.nan) + " NaN");
  if (count.inf > 0) parts.push_back(std::to_string(count.inf) + (count.inf == 1 ? " infinity" : " infinities"));
  return join(parts, " and ");
}

std::string text_of(const std::vector<NanReport::Named>& tensors) {
  std::vector<std::string> parts;
  for (const auto& [fqn, count] : tensors) {
    if (parts.size() == kNamed) break;
    parts.push_back(fqn + " (" + text_of(count) + ")");
  }
  const auto more = tensors.size() - parts.size();
  return join(parts, ", ") + (more > 0 ? " and " + std::to_string(more) + " more" : "");
}

// Describes the parameters of `module` itself that are not finite, "its weight holds 3 NaN"; "" if all are finite.
std::string own_weights(const NanReport& report, const std::string& module) {
  std::vector<std::string> parts;
  for (const auto& [fqn, count] : report.weights) {
    const std::string prefix = module.empty() ? "" : module + ".";
    if (!fqn.starts_with(prefix) || fqn.find('.', prefix.size()) != std::string::npos) continue;
    parts.push_back("its " + fqn.substr(prefix.size()) + " holds " + text_of(count));
  }
  return join(parts, ", ");
}

std::string text_of(const NanReport& report, const NanReport::Output& output) {
  const std::string what = output.module.empty() ? "the loss" : "the output of " + output.module;
  const std::string weights = own_weights(report, output.module);
  return fmt::format("{} on rank {}, microbatch {} ({}, its inputs are {}{}{})", what, output.rank, output.microbatch,
                     text_of(output.count), output.inputs_are_finite ? "finite" : "not finite",
                     weights.empty() ? "" : ", ", weights);
}

}  // namespace

std::string describe(const NanReport& report) {
  std::vector<std::string> parts;
  if (report.output) {
    parts.push_back("first not finite: " + text_of(report, *report.output));
  } else {
    parts.push_back(
        "every output is finite when the forward is run again: it began in backward, or does not happen each time");
  }
  if (!report.bad_loss_ranks.empty()) {
    std::vector<std::string> ranks;
    for (const int rank : report.bad_loss_ranks) ranks.push_back(std::to_string(rank));
    parts.push_back("the loss is not finite on rank" + std::string(ranks.size() > 1 ? "s " : " ") + join(ranks, ", "));
  }
  parts.push_back("weights: " + (report.weights.empty() ? "all finite" : text_of(report.weights)));
  if (report.has_gradients) {
    // Backward goes through the model from its end.
    parts.push_back(
        report.gradients.empty()
            ? "gradients: each is finite"
            : fmt::format("gradients: those of {} of {} parameters are not finite, first {} as backward goes",
                          report.gradients.size(), report.num_parameters, report.gradients.back().fqn));
  }
  return join(parts, "; ");
}

// The first non-finite output on this rank.
struct NanLocator::First {
  bool is_found = false;
  std::int64_t microbatch = 0;
  std::int64_t call = 0;  // index in the microbatch, in the order in which calls end
  std::string module;     // its name
  bool inputs_are_finite = true;
  NotFinite count;
  bool loss_is_finite = true;
};

NanReport NanLocator::locate(const std::vector<Batch>& microbatches, bool with_gradients) {
  const at::NoGradGuard no_grad;
  NanReport report;
  report.num_parameters = parameters_.size();
  report.weights = gather_counts(/*of_gradients=*/false);
  if (!report.weights.empty()) gather_weight_facts(report);
  report.has_gradients = with_gradients;
  if (with_gradients) report.gradients = gather_counts(/*of_gradients=*/true);
  gather_first(report, run_forward(microbatches));
  return report;
}

// Runs to the end whatever it finds, since the other ranks are in the same collectives.
NanLocator::First NanLocator::run_forward(const std::vector<Batch>& microbatches) {
  const Evaluation evaluation(model_);
  First first;
  std::int64_t microbatch = 0, call = 0;
  const auto modules = model_.named_modules();
  std::vector<nn::Module*> hooked;
  // Removes the hooks, also if the forward throws.
  struct Unhook {
    std::vector<nn::Module*>& modules;
    ~Unhook() {
      for (auto* module : modules) module->pop_post_hook();
    }
  } unhook{hooked};
  for (std::size_t i = 0; i < modules.size(); ++i) {
    if (modules[i].module->is_container()) continue;
    modules[i].module->add_post_hook([&, i](nn::Module&, const nn::Tensors& inputs, at::Tensor& output) {
      ++call;
      if (first.is_found || is_finite(output)) return;
      first = {.is_found = true,
               .microbatch = microbatch * forward_backward_.num_parts() + part_in_work(),
               .call = call,
               .module = modules[i].fqn,
               .inputs_are_finite = std::ranges::all_of(inputs, is_finite),
               .count = count_of(output),
               .loss_is_finite = first.loss_is_finite};
    });
    hooked.push_back(modules[i].module);
  }
  for (const auto& batch : microbatches) {
    call = 0;
    if (!is_finite(forward_backward_.forward(batch).loss)) first.loss_is_finite = false;
    ++microbatch;
  }
  fsdp::reshard(model_, /*recurse=*/true);
  return first;
}

// Returns the place of a module's layer in the whole model, of which other ranks may have the layers before.
std::int64_t NanLocator::place_of(std::string_view module) const {
  const auto& slots = parameters_.stored();
  const std::string layer = std::string(layer_of(module)) + ".";
  const auto found = std::ranges::find_if(slots, [&](const auto& slot) { return slot.first.starts_with(layer); });
  return found - slots.begin();
}

void NanLocator::gather_first(NanReport& report, const First& first) {
  const auto mine = at::tensor(
      {std::int64_t{first.is_found}, first.microbatch, place_of(first.module), first.call,
       std::int64_t{first.inputs_are_finite}, first.count.nan, first.count.inf, std::int64_t{first.loss_is_finite}},
      at::kLong);
  const auto modules = world_.all_gather_bytes(first.module);
  const auto width = mine.numel();
  auto all = at::empty({world_.size() * width}, at::kLong);
  world_.all_gather(all, mine).wait();
  auto earliest = std::tuple(std::numeric_limits<std::int64_t>::max(), std::int64_t{0}, std::int64_t{0});
  for (int rank = 0; rank < world_.size(); ++rank) {
    const auto* row = all.const_data_ptr<std::int64_t>() + rank * width;
    if (row[7] == 0) report.bad_loss_ranks.push_back(world_.ranks()[static_cast<std::size_t>(rank)]);
    if (row[0] == 0 || std::tuple(row[1], row[2], row[3]) >= earliest) continue;
    earliest = {row[1], row[2], row[3]};
    report.output = {.module = modules[static_cast<std::size_t>(rank)],
                     .rank = world_.ranks()[static_cast<std::size_t>(rank)],
                     .microbatch = row[1],
                     .inputs_are_finite = row[4] != 0,
                     .count = {row[5], row[6]}};
  }
}

std::vector<NanReport::Named> NanLocator::gather_counts(bool of_gradients) {
  auto counts = at::zeros({static_cast<std::int64_t>(parameters_.size()), 2}, at::kLong);
  auto* numbers = counts.mutable_data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].local || parameters_[i].is_copy()) continue;
    const auto& tensor = parameters_[i].local->tensor();
    const auto count = count_of(of_gradients ? tensor.grad() : tensor.detach());
    numbers[2 * i] = count.nan;
    numbers[2 * i + 1] = count.inf;
  }
  world_.all_reduce(counts, dist::ReduceOp::kSum).wait();
  std::vector<NanReport::Named> bad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const NotFinite count{numbers[2 * i], numbers[2 * i + 1]};
    if (count.total() > 0) bad.push_back({parameters_[i].fqn, count});
  }
  return bad;
}

void NanLocator::gather_weight_facts(NanReport& report) {
  bool holds_bad = false, are_small = true;
  for (const auto& parameter : parameters_) {
    if (!parameter.local || parameter.local->tensor().numel() == 0) continue;
    const auto tensor = parameter.local->tensor().detach();
    if (!is_finite(tensor)) holds_bad = true;
    if (!is_small(at::nan_to_num(tensor, 0, 0, 0).abs().max())) are_small = false;
  }
  const auto all = world_.all_gather_bytes((are_small ? "small " : "large ") + (holds_bad ? host_name() + " " : ""));
  report.other_weights_are_small = true;
  for (int rank = 0; rank < world_.size(); ++rank) {
    const auto words = split(all[static_cast<std::size_t>(rank)], ' ');
    if (words.at(0) != "small") report.other_weights_are_small = false;
    if (words.size() > 2)
      report.ranks_of_weights.push_back(
          fmt::format("rank {} ({})", world_.ranks()[static_cast<std::size_t>(rank)], words[1]));
  }
}

bool NanLocator::weights_are_finite() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> parts;
  for (const auto& parameter : parameters_) {
    if (parameter.local && parameter.local->tensor().numel() > 0) parts.push_back(parameter.local->tensor().detach());
  }
  bool is_bad = false;
  // Takes the largest magnitude of each tensor, so that no other tensor of its size is made.
  if (!parts.empty()) {
    auto largest = at::_foreach_norm(parts, std::numeric_limits<double>::infinity());
    for (auto& one : largest) one = one.to(parts[0].device(), at::kFloat);
    is_bad = !is_finite(at::stack(largest));
  }
  auto bad_ranks = at::full({1}, std::int64_t{is_bad}, at::kLong);
  world_.all_reduce(bad_ranks, dist::ReduceOp::kSum).wait();
  return bad_ranks.item<std::int64_t>() == 0;
}

}  // namespace titan::train

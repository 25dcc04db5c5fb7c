#include "train/first_step.h"

#include <ATen/core/Tensor.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <utility>

#include "base/log.h"
#include "base/process/phase.h"
#include "base/process/step_work.h"
#include "distributed/flight/flight_recorder.h"
#include "train/run_folder.h"
#include "train/slow_products.h"

namespace titan::train {
namespace {

constexpr auto kPeriod = std::chrono::milliseconds(500);

std::string advice_for(const config::JobConfig& config, const dist::World& world) {
  const std::string slow_products = slow_products_warning(config, world.device().type());
  if (!slow_products.empty()) return "It is slow because " + slow_products;
  return "Shorter steps: a smaller training.seq_len, training.global_batch_size or model, or more ranks; titan-train "
         "doctor says what this machine is good for";
}

// Counts a layer's forward and backward. Backward is over once the gradient of the layer's input is known.
void count_layer(nn::Module& /*layer*/, nn::Tensors& inputs) {
  if (!step_work().counts() || phase_log().current() != Phase::kStep) return;
  step_work().begin_forward_of_layer();
  if (inputs[0].requires_grad())
    inputs[0].register_hook([](const at::Tensor& /*gradient*/) { step_work().end_backward_of_layer(); });
}

// Hooks into the layers: the children of containers (lists of blocks).
void count_layers(nn::Module& model) {
  std::int64_t layers = 0;
  for (const auto& [fqn, module] : model.named_modules()) {
    if (!module->is_container()) continue;
    layers += std::ssize(module->children());
    for (const auto& [name, layer] : module->children()) layer->add_pre_hook(count_layer);
  }
  step_work().set_layers(layers);
}

}  // namespace

FirstStep::FirstStep(const config::JobConfig& config, const std::string& chat_template, dist::World& world,
                     nn::Module& model, metrics::MetricsProcessor& metrics)
    : config_(config),
      chat_template_(chat_template),
      world_(world),
      metrics_(metrics),
      slow_(config.training.steps, advice_for(config, world)) {
  count_layers(model);
}

void FirstStep::before_step() {
  if (is_done_ || ticker_) return;
  begin_ = std::chrono::steady_clock::now();
  if (speaks_for_all())
    ticker_ = std::make_unique<Ticker>("reports the progress of the first step", kPeriod, [this] { tick(); });
}

void FirstStep::tick() {
  const PhaseLog& phases = phase_log();
  const StepLook look{.step = phases.step(),
                      .seconds = seconds_between(begin_, std::chrono::steady_clock::now()),
                      .phase = phases.current(),
                      .in_collective = dist::flight_recorder().holds_training_thread(),
                      .progress = step_work().get()};
  metrics_.show_progress(look.step, look.progress, look.seconds);
  if (const auto line = slow_.look(look)) spdlog::warn("{}", *line);
}

Verdict FirstStep::after_step(const StepView& /*step*/) {
  if (std::exchange(is_done_, true)) return Verdict::go_on();
  ticker_.reset();
  step_work().set_layers(0);
  if (world_.rank() == 0) write_run_config(config_, chat_template_);
  world_.group().barrier();
  world_.set_timeout(std::chrono::seconds(config_.comm.train_timeout_seconds));
  return Verdict::go_on();
}

}  // namespace titan::train

#include "nn/ops/op_trace.h"

#include <ATen/ATen.h>

#include <utility>

#include "base/error.h"
#include "facts/shard_spec.h"

namespace titan::nn {
namespace {

thread_local OpTrace* current_trace = nullptr;

const char* name_of(OpKind kind) { return kind == OpKind::kLinear ? "linear" : "attention"; }

std::string describe(const at::Tensor& tensor) {
  return std::string(c10::toString(tensor.scalar_type())) + " " + dist::shape_text(tensor.sizes()) + " on " +
         tensor.device().str();
}

}  // namespace

OpTrace* OpTrace::current() { return current_trace; }

OpTrace::Scope::Scope(OpTrace& trace) : outer_(std::exchange(current_trace, &trace)) {}
OpTrace::Scope::~Scope() { current_trace = outer_; }

OpTrace::Action OpTrace::begin(const Op& op, bool keepable) {
  if (!recomputing_) {
    const bool kept = policy_ && policy_(op) && keepable;
    forward_.push_back({.kind = op.kind});
    return kept ? Action::kComputeAndKeep : Action::kCompute;
  }
  recomputed_.push_back({.kind = op.kind});
  if (next_ == forward_.size() || forward_[next_].kind != op.kind) {
    fail("operator " + std::to_string(next_ + 1) + " of the recomputation is " + name_of(op.kind) +
         ", in forward it was " + (next_ == forward_.size() ? "none" : name_of(forward_[next_].kind)));
  }
  return forward_[next_].num_kept > 0 ? Action::kTake : Action::kCompute;
}

void OpTrace::keep(KeptTensors kept) {
  forward_.back().num_kept = kept.tensors.size();
  forward_.back().kernel = kept.kernel;
  for (auto& tensor : kept.tensors) {
    kept_versions_.push_back(tensor.defined() ? tensor._version() : 0);
    kept_.push_back(std::move(tensor));
  }
}

KeptTensors OpTrace::take() {
  const auto& entry = forward_[next_];
  KeptTensors kept{{}, entry.kernel};
  for (std::size_t i = 0; i < entry.num_kept; ++i) kept.tensors.push_back(std::move(kept_[next_kept_++]));
  return kept;
}

void OpTrace::end(const at::Tensor& output) {
  if (!recomputing_) {
    forward_.back().output = describe(output);
    return;
  }
  recomputed_.back().output = describe(output);
  if (check_) {
    compare("the output of operator " + std::to_string(next_ + 1) + " (" + name_of(forward_[next_].kind) + ")",
            forward_[next_].output, recomputed_.back().output);
  }
  ++next_;
}

std::vector<at::Tensor> OpTrace::release_kept() {
  for (std::size_t i = 0; i < kept_.size(); ++i) {
    if (!kept_[i].defined() || kept_[i]._version() == kept_versions_[i]) continue;
    throw InternalError("[checkpoint] the output " + describe(kept_[i]) +
                        " of an operator was written to in place after it was kept for the recomputation");
  }
  return std::exchange(kept_, {});
}

void OpTrace::start_recomputation(std::vector<at::Tensor> kept, bool check, bool verbose) {
  kept_ = std::move(kept);
  check_ = check;
  verbose_ = verbose;
  recomputing_ = true;
  next_ = next_kept_ = 0;
  recomputed_.clear();
}

void OpTrace::finish_recomputation() {
  kept_.clear();
  if (!check_ || next_ == forward_.size()) return;
  fail("it ran " + std::to_string(next_) + " operators, forward ran " + std::to_string(forward_.size()));
}

void OpTrace::module_output(const at::Tensor& output) {
  if (!recomputing_) {
    module_output_ = describe(output);
  } else if (check_) {
    compare("the module's output", module_output_, describe(output));
  }
}

void OpTrace::compare(const std::string& what, const std::string& expected, const std::string& found) const {
  if (expected != found) fail(what + " is " + found + ", in forward it was " + expected);
}

void OpTrace::fail(const std::string& message) const {
  std::string text = "[checkpoint] the recomputation of a module differs from its forward: " + message +
                     ". Its forward must do the same each time it is called with the same inputs";
  const auto list = [&](const char* title, const std::vector<Entry>& entries) {
    text += std::string("\n") + title + ":";
    for (const auto& entry : entries) text += std::string("\n  ") + name_of(entry.kind) + " -> " + entry.output;
  };
  if (verbose_) {
    list("operators of the forward", forward_);
    list("operators of the recomputation", recomputed_);
  }
  throw InternalError(text);
}

}  // namespace titan::nn

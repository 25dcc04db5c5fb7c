#include "kernels/operators.h"

#include <c10/core/TensorOptions.h>
#include <torch/library.h>

#include <map>
#include <string>
#include <string_view>

#include "kernels/cpu/attention/attention_operators.h"
#include "kernels/cpu/rows/row_operators.h"

namespace titan::kernels {
namespace {

struct Registry {
  std::map<c10::DeviceType, RegisterKernels> provided;
  std::map<c10::DeviceType, torch::Library> in_use;
};

// Registers the operators of the CPU, for it or for the meta device, which stands for it.
void register_host_operators(torch::Library& library) {
  register_attention_operators(library);
  register_row_operators(library);
}

// Returns the registry of this process, which is never destroyed: tensors may outlive any scope.
Registry& registry() {
  static auto* const made = new Registry{
      {{c10::DeviceType::CPU, register_host_operators}, {c10::DeviceType::Meta, register_host_operators}}, {}};
  return *made;
}

torch::Library& definitions() {
  static auto* const made = new torch::Library(torch::Library::DEF, "titan", std::nullopt, __FILE__, __LINE__);
  return *made;
}

[[maybe_unused]] const bool g_are_in_use_from_the_start = [] {
  use_fused_kernels(c10::DeviceType::CPU, true);
  use_fused_kernels(c10::DeviceType::Meta, true);
  return true;
}();

}  // namespace

void provide_kernels(c10::DeviceType type, RegisterKernels register_kernels) {
  registry().provided.insert_or_assign(type, std::move(register_kernels));
}

void use_fused_kernels(c10::DeviceType type, bool in_use) {
  if (in_use == uses_fused_kernels(type)) return;
  if (!in_use) {
    registry().in_use.erase(type);
    return;
  }
  const auto provided = registry().provided.find(type);
  if (provided == registry().provided.end()) return;
  const auto key = c10::computeDispatchKey(std::nullopt, std::nullopt, c10::Device(type));
  torch::Library library(torch::Library::IMPL, "titan", key, __FILE__, __LINE__);
  provided->second(library);
  registry().in_use.emplace(type, std::move(library));
}

bool uses_fused_kernels(c10::DeviceType type) { return registry().in_use.contains(type); }

// Defines the operator. Devices without a kernel get one that takes no arguments.
template <typename Result, typename... Args>
Operator<Result(Args...)>::Operator(const char* schema)
    : handle_([schema] {
        definitions().def(
            schema, torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, [](Args...) { return Result(); }));
        const std::string_view text = schema;
        const auto name = "titan::" + std::string(text.substr(0, text.find('(')));
        return c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "").template typed<Result(Args...)>();
      }()) {}

}  // namespace titan::kernels

namespace titan {

decltype(ops::rms_norm) ops::rms_norm("rms_norm(Tensor x, Tensor weight, float eps) -> (Tensor, Tensor)");
decltype(ops::add_rms_norm) ops::add_rms_norm(
    "add_rms_norm(Tensor x, Tensor delta, Tensor weight, float eps) -> (Tensor, Tensor, Tensor)");
decltype(ops::rms_norm_backward) ops::rms_norm_backward(
    "rms_norm_backward(Tensor out_grad, Tensor x, Tensor weight, Tensor rrms, Tensor? more) -> (Tensor, Tensor)");
decltype(ops::rotate) ops::rotate("rotate(Tensor x, Tensor factors, bool conjugate) -> Tensor");
decltype(ops::rotate_halves) ops::rotate_halves("rotate_halves(Tensor x, Tensor factors, bool conjugate) -> Tensor");
decltype(ops::swiglu) ops::swiglu("swiglu(Tensor gate, Tensor up) -> Tensor");
decltype(ops::swiglu_backward) ops::swiglu_backward(
    "swiglu_backward(Tensor out_grad, Tensor gate, Tensor up) -> (Tensor, Tensor)");
decltype(ops::linear_of_few_rows) ops::linear_of_few_rows("linear_of_few_rows(Tensor x, Tensor weight) -> Tensor");
decltype(ops::attend_part) ops::attend_part(
    "attend_part(Tensor q, Tensor k, Tensor v, int offset) -> (Tensor, Tensor)");
decltype(ops::attend_part_backward) ops::attend_part_backward(
    "attend_part_backward(Tensor out_grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor sums, int offset) -> "
    "(Tensor, Tensor, Tensor)");
decltype(ops::cross_entropy) ops::cross_entropy(
    "cross_entropy(Tensor logits, Tensor labels, int ignored) -> (Tensor, Tensor)");
decltype(ops::softmax_stats) ops::softmax_stats("softmax_stats(Tensor logits, Tensor labels) -> Tensor");
decltype(ops::cross_entropy_backward) ops::cross_entropy_backward(
    "cross_entropy_backward(Tensor loss_grad, Tensor logits, Tensor labels, Tensor stats, Tensor(a!) grad) -> bool");
decltype(ops::adamw) ops::adamw(
    "adamw(Tensor(a!) param, Tensor grad, Tensor(b!) exp_avg, Tensor(c!) exp_avg_sq, float lr, float beta1, "
    "float beta2, float eps, float weight_decay, float step, float grad_factor, Tensor(d!)? sums) -> bool");
decltype(ops::adamw_sum) ops::adamw_sum("adamw_sum(Tensor tensor) -> int");

}  // namespace titan

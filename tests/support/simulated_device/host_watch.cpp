// Watches CPU operators that touch memory which the device copies asynchronously (pinned memory).
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/simulated_device/parts.h"
#include "tests/support/simulated_device/state.h"

namespace titan::sim {
namespace {

// True for operators that access memory: not views, and not operators that only call others.
bool touches_memory(const c10::OperatorHandle& op) {
  if (op.schema().name() == "aten::copy_") return true;
  if (!op.hasKernelForDispatchKey(c10::DispatchKey::CPU)) return false;
  return std::ranges::none_of(op.schema().returns(), [](const c10::Argument& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
}

void collect(const c10::IValue& value, std::vector<at::Tensor>& tensors) {
  if (value.isTensor()) tensors.push_back(value.toTensor());
  if (!value.isTensorList()) return;
  for (const at::Tensor& tensor : value.toTensorList().vec()) tensors.push_back(tensor);
}

std::unique_ptr<at::ObserverContext> look(const at::RecordFunction& function) {
  const auto name = function.operator_name();
  if (!name) return nullptr;
  const auto op = c10::Dispatcher::singleton().findSchema(*name);
  if (!op || !touches_memory(*op)) return nullptr;
  std::vector<Use> uses;
  const auto inputs = function.inputs();
  const auto& arguments = op->schema().arguments();
  for (std::size_t i = 0; i < std::min(inputs.size(), arguments.size()); ++i) {
    std::vector<at::Tensor> tensors;
    collect(inputs[i], tensors);
    const bool writes = arguments[i].alias_info() != nullptr && arguments[i].alias_info()->isWrite();
    for (const auto& tensor : tensors) {
      if (!tensor.defined()) continue;
      if (!tensor.is_cpu()) return nullptr;  // the device's own copy, or an operator of another device
      if (tensor.has_storage() && State::get().is_pinned(tensor.storage().data()))
        uses.push_back({bytes_of(tensor), writes, arguments[i].name()});
    }
  }
  if (!uses.empty()) State::get().touch_by_host(op->schema().name(), uses);
  return nullptr;
}

}  // namespace

void install_host_watch() {
  at::addGlobalCallback(at::RecordFunctionCallback(&look).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
}

}  // namespace titan::sim

// libtitan_operator_bytes.so counts the bytes that torch's operators read and write on devices, in a process on the
// null CUDA runtime (NULL_CUDA_OBSERVER). Any program that loads torch 2.11 can be counted, also Python.
//
//   NULL_CUDA_OPERATORS   folder that gets operator_bytes.RANK.PID.json
//
// An operator counts if it launches a kernel, a copy or a fill itself, and not through another operator: each launch
// belongs to exactly one operator, views and allocations count nothing, nor do collectives. It reads all of its tensors
// on the device but those that it only writes, and writes its results and the arguments that its schema marks. A tensor
// counts once for each argument, and its expanded dims do not count. What a kernel reads twice or not at all (most rows
// of an embedding) and memory that it needs for itself do not show: the numbers are those of kernels that move each
// tensor once.
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/null_cuda/observer.h"

namespace {

struct Bytes {
  std::int64_t read = 0, written = 0;
};

struct Total {
  long calls = 0, work = 0;  // work: launches, copies and fills
  Bytes bytes;
};

struct Totals {
  std::mutex mutex;
  std::map<std::string, Total> of_operators;
  long outside = 0;  // work that no operator asked for, and the first launch, which starts the counting
};

Totals& totals() {
  static auto& all = *new Totals;
  return all;
}

// True if the operator writes its first argument, and does not read it before.
bool only_writes_first(std::string_view name) {
  static constexpr std::string_view kNames[] = {"aten::copy_",          "aten::fill_",         "aten::zero_",
                                                "aten::normal_",        "aten::uniform_",      "aten::random_",
                                                "aten::_foreach_copy_", "aten::_foreach_zero_"};
  return std::ranges::find(kNames, name) != std::end(kNames);
}

// A call in progress. Each thread has a stack of them.
struct Call : at::ObserverContext {
  Call* outer = nullptr;
  std::string name;
  long work_before = 0, work_of_nested = 0;
  Bytes bytes;
  std::vector<bool> is_written;  // by result: it is not a view
};

thread_local Call* innermost = nullptr;
thread_local long work_seen = 0;  // of this thread, at the end of its last outermost call

std::int64_t bytes_of(const at::Tensor& tensor) {
  // A subclass of Python stands for other tensors, which operators of their own get.
  if (!tensor.defined() || !tensor.is_cuda() || tensor.unsafeGetTensorImpl()->is_python_dispatch()) return 0;
  std::int64_t count = 1;
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim)
    if (tensor.stride(dim) != 0 || tensor.size(dim) == 0) count *= tensor.size(dim);
  return count * static_cast<std::int64_t>(tensor.element_size());
}

// Returns the bytes of a tensor or of a list of tensors; 0 if the value is neither.
std::int64_t bytes_of(const c10::IValue& value) {
  if (value.isTensor()) return bytes_of(value.toTensor());
  if (!value.isList()) return 0;
  std::int64_t sum = 0;
  for (const c10::IValue& each : value.toListRef())
    if (each.isTensor()) sum += bytes_of(each.toTensor());
  return sum;
}

// True if the call returns the argument. An `out` may get its size only in the call.
bool is_returned(const c10::FunctionSchema& schema, const c10::AliasInfo& alias) {
  return std::ranges::any_of(schema.returns(), [&](const c10::Argument& result) {
    return result.alias_info() && *result.alias_info() == alias;
  });
}

// True if the call does not write the argument although its schema says so: the fused AdamW writes gradients only if it
// has to unscale them.
bool is_left_alone(const c10::FunctionSchema& schema, const at::RecordFunction& function, std::size_t argument) {
  if (schema.name() != "aten::_fused_adamw_" || schema.arguments()[argument].name() != "grads") return false;
  const auto scale = schema.argumentIndexWithName("grad_scale");
  return scale && function.inputs()[static_cast<std::size_t>(*scale)].isNone();
}

void add_arguments(Call& call, const at::RecordFunction& function, const c10::FunctionSchema& schema) {
  const auto inputs = function.inputs();
  const auto& arguments = schema.arguments();
  for (std::size_t i = 0; i < std::min(inputs.size(), arguments.size()); ++i) {
    const std::int64_t bytes = bytes_of(inputs[i]);
    if (bytes == 0) continue;
    const auto* const alias = arguments[i].alias_info();
    const bool is_marked = alias && alias->isWrite();
    const bool is_only_written =
        is_marked && (arguments[i].kwarg_only() || (i == 0 && only_writes_first(schema.name())));
    if (!is_only_written) call.bytes.read += bytes;
    const bool is_written = is_marked && !is_returned(schema, *alias) && !is_left_alone(schema, function, i);
    if (is_written) call.bytes.written += bytes;
  }
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  auto call = std::make_unique<Call>();
  const long work = titan_null_work_of_thread();
  if (!innermost && work > work_seen) {
    const std::lock_guard lock(totals().mutex);
    totals().outside += work - work_seen;
  }
  call->work_before = work;
  call->outer = innermost;
  innermost = call.get();
  call->name = function.name();
  if (const auto schema = function.operator_schema()) {
    if (!schema->overload_name().empty()) call->name += "." + schema->overload_name();
    add_arguments(*call, function, *schema);
    for (const auto& result : schema->returns())
      call->is_written.push_back(!result.alias_info() || result.alias_info()->isWrite());
  } else {
    for (const auto& input : function.inputs()) call->bytes.read += bytes_of(input);
  }
  return call;
}

void on_end(const at::RecordFunction& function, at::ObserverContext* context) {
  auto& call = *static_cast<Call*>(context);
  const long now = titan_null_work_of_thread();
  const long with_nested = now - call.work_before, work = with_nested - call.work_of_nested;
  innermost = call.outer;
  if (innermost)
    innermost->work_of_nested += with_nested;
  else
    work_seen = now;
  if (work == 0) return;
  const auto& results = function.outputs();
  for (std::size_t i = 0; i < std::min(results.size(), call.is_written.size()); ++i)
    if (call.is_written[i]) call.bytes.written += bytes_of(results[i]);
  const std::lock_guard lock(totals().mutex);
  Total& total = totals().of_operators[call.name];
  ++total.calls;
  total.work += work;
  total.bytes.read += call.bytes.read;
  total.bytes.written += call.bytes.written;
}

void write_totals() {
  const char* const folder = std::getenv("NULL_CUDA_OPERATORS");
  if (!folder) return;
  const char* const rank = std::getenv("RANK");
  const std::string name =
      "/operator_bytes." + std::string(rank ? rank : "0") + "." + std::to_string(::getpid()) + ".json";
  const std::lock_guard lock(totals().mutex);
  std::ofstream out(folder + name);
  out << "{\"rank\": " << (rank ? rank : "0") << ", \"outside\": " << totals().outside << ",\n\"operators\": {";
  const char* between = "\n  ";
  for (const auto& [operator_name, total] : totals().of_operators) {
    out << between << '"' << operator_name << "\": {\"calls\": " << total.calls << ", \"work\": " << total.work
        << ", \"read\": " << total.bytes.read << ", \"written\": " << total.bytes.written << '}';
    between = ",\n  ";
  }
  out << "}}\n";
}

// Starts to count when the null runtime opens this library.
__attribute__((constructor)) void start() {
  at::addGlobalCallback(at::RecordFunctionCallback(on_start, on_end)
                            .needsInputs(true)
                            .needsOutputs(true)
                            .scopes({at::RecordScope::FUNCTION}));
  titan_null_call_at_end(write_totals);
}

}  // namespace

// The operators of the device: each runs the CPU's kernel in the device's memory and reports what it touched.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tests/support/simulated_device/parts.h"

namespace titan::sim {

bool is_here(const at::Tensor& tensor) { return tensor.defined() && tensor.is_privateuseone(); }

at::Tensor on_host(const at::Tensor& tensor) {
  if (!is_here(tensor)) return tensor;
  if (tensor.numel() == 0) return at::empty(tensor.sizes(), tensor.options().device(at::kCPU).requires_grad(false));
  auto* const data = static_cast<char*>(tensor.storage().mutable_data()) +
                     static_cast<std::size_t>(tensor.storage_offset()) * tensor.element_size();
  return at::from_blob(data, tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU).requires_grad(false));
}

Bytes bytes_of(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return {};
  std::int64_t last = 0;
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) last += (tensor.size(dim) - 1) * tensor.stride(dim);
  const auto size = static_cast<Address>(tensor.element_size());
  const Address begin =
      reinterpret_cast<Address>(tensor.storage().data()) + static_cast<Address>(tensor.storage_offset()) * size;
  return {begin, begin + (static_cast<Address>(last) + 1) * size};
}

namespace {

class DeviceAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* const memory = State::get().allocate(bytes);
    return {memory, memory, &release, device()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static void release(void* memory) { State::get().free(memory); }
};

DeviceAllocator& allocator() {
  static auto* const made = new DeviceAllocator();
  return *made;
}

// True for operators whose result, or its shape, must be known to the host.
bool synchronizes(const std::string& name) {
  static const std::set<std::string> names = {"aten::nonzero",   "aten::masked_select", "aten::_local_scalar_dense",
                                              "aten::equal",     "aten::_unique2",      "aten::unique_dim",
                                              "aten::is_nonzero"};
  return names.contains(name);
}

void synchronize(const std::string& why) {
  auto& state = State::get();
  state.synchronize(state.record(current_stream()), why);
}

at::Tensor empty(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype) {
  std::int64_t last = 0;
  bool is_empty = false;
  for (std::size_t dim = 0; dim < sizes.size(); ++dim) {
    is_empty |= sizes[dim] == 0;
    last += (sizes[dim] - 1) * strides[dim];
  }
  const auto bytes = is_empty ? 0 : static_cast<std::size_t>(last + 1) * c10::elementSize(dtype);
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, allocator().allocate(bytes), &allocator(),
                       /*resizable=*/true);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

}  // namespace

at::Tensor to_device(const at::Tensor& result) {
  auto made = empty(result.sizes(), result.strides(), result.scalar_type());
  const auto bytes = bytes_of(made);
  if (bytes.begin != bytes.end)
    std::memcpy(reinterpret_cast<void*>(bytes.begin), result.const_data_ptr(), bytes.end - bytes.begin);
  return made;
}

namespace {

// Gives an output the shape and data that an operator gave its host tensor; the output was empty until then.
void take_shape(const at::Tensor& here, const at::Tensor& host) {
  const auto made = to_device(host);
  auto* const storage = here.storage().unsafeGetStorageImpl();
  storage->set_nbytes(made.storage().nbytes());
  storage->set_data_ptr_noswap(made.storage().unsafeGetStorageImpl()->set_data_ptr(at::DataPtr(nullptr, device())));
  here.unsafeGetTensorImpl()->set_sizes_and_strides(made.sizes(), made.strides());
}

struct Argument {
  at::Tensor here, host;
};

// Replaces device tensors in `value` by CPU tensors in the same memory.
c10::IValue move_to_host(const c10::IValue& value, std::vector<Argument>& moved) {
  const auto move = [&](const at::Tensor& tensor) {
    if (!is_here(tensor)) return tensor;
    moved.push_back({tensor, on_host(tensor)});
    return moved.back().host;
  };
  if (value.isTensor()) return move(value.toTensor());
  if (value.isTensorList()) {
    std::vector<at::Tensor> tensors;
    for (const at::Tensor& tensor : value.toTensorList().vec()) tensors.push_back(move(tensor));
    return c10::IValue(tensors);
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> tensors;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList().vec())
      tensors.push_back(tensor ? std::optional(move(*tensor)) : std::nullopt);
    return c10::IValue(tensors);
  }
  if (value.isDevice() && value.toDevice().is_privateuseone()) return c10::IValue(c10::Device(at::kCPU));
  return value;
}

// Returns a view in the memory of `here`, with the shape and dtype of `result`.
at::Tensor view_of(const at::Tensor& here, const at::Tensor& result, Address begin) {
  auto view = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(here.storage()),
                                                       here.key_set(), result.dtype());
  auto* const impl = view.unsafeGetTensorImpl();
  impl->set_storage_offset(static_cast<std::int64_t>((begin - reinterpret_cast<Address>(here.storage().data())) /
                                                     static_cast<Address>(result.element_size())));
  impl->set_sizes_and_strides(result.sizes(), result.strides());
  return view;
}

// Returns the device tensor for a result: an argument if the operator wrote to it, a view of an argument if the result
// is in its memory, else a new tensor.
at::Tensor bring_back(const at::Tensor& result, const std::vector<Argument>& arguments, std::vector<Use>& uses) {
  if (!result.defined() || !result.is_cpu()) return result;
  for (const auto& [here, host] : arguments)
    if (result.is_same(host)) return here;
  for (const auto& [here, host] : arguments) {
    const Bytes whole = bytes_of(host), part = bytes_of(result);
    if (part.begin == part.end || !whole.contains(part)) continue;
    return view_of(here, result, part.begin);
  }
  auto made = to_device(result);
  uses.push_back({bytes_of(made), true, "result"});
  return made;
}

c10::IValue bring_back(const c10::IValue& value, const std::vector<Argument>& arguments, std::vector<Use>& uses) {
  if (value.isTensor()) return bring_back(value.toTensor(), arguments, uses);
  if (value.isTensorList()) {
    std::vector<at::Tensor> tensors;
    for (const at::Tensor& tensor : value.toTensorList().vec()) tensors.push_back(bring_back(tensor, arguments, uses));
    return c10::IValue(tensors);
  }
  return value;
}

// Throws for tensors of the host: a GPU reads host memory only for scalars and, through a copy, indices.
void check_devices(const std::string& name, at::ArrayRef<c10::IValue> arguments) {
  if (name.starts_with("aten::index") || name.starts_with("aten::_index_put")) return;
  const auto check = [&](const at::Tensor& tensor) {
    TORCH_CHECK(!tensor.defined() || !tensor.is_cpu() || tensor.dim() == 0,
                "Expected all tensors to be on the same device: ", name, " is given one of the host");
  };
  for (const auto& argument : arguments) {
    if (argument.isTensor()) check(argument.toTensor());
    if (!argument.isTensorList()) continue;
    for (const at::Tensor& tensor : argument.toTensorList().vec()) check(tensor);
  }
}

// True for operators that launch no kernel.
bool is_on_paper(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.returns(), [](const c10::Argument& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
}

void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const std::string name = schema.name() + (schema.overload_name().empty() ? "" : "." + schema.overload_name());
  const std::size_t num_arguments = schema.arguments().size();
  const std::size_t first = stack->size() - num_arguments;
  std::vector<Argument> arguments;
  std::vector<Use> uses;
  check_devices(schema.name(), at::ArrayRef<c10::IValue>(stack->data() + first, num_arguments));
  for (std::size_t i = 0; i < num_arguments; ++i) {
    const std::size_t before = arguments.size();
    (*stack)[first + i] = move_to_host((*stack)[first + i], arguments);
    const auto* alias = schema.arguments()[i].alias_info();
    for (std::size_t j = before; j < arguments.size(); ++j)
      uses.push_back({bytes_of(arguments[j].here), alias != nullptr && alias->isWrite(), schema.arguments()[i].name()});
  }
  if (synchronizes(schema.name())) synchronize(name);
  const at::DisableRecordFunctionGuard unseen;  // hides the call from the host watch
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto& [here, host] = arguments[i];
    if (here.sizes() == host.sizes()) continue;
    take_shape(here, host);
    uses[i].bytes = bytes_of(here);
  }
  const std::size_t num_results = schema.returns().size();
  for (std::size_t i = stack->size() - num_results; i < stack->size(); ++i)
    (*stack)[i] = bring_back((*stack)[i], arguments, uses);
  if (!is_on_paper(schema)) State::get().queue(current_stream(), name, uses);
}

at::Tensor empty_memory_format(c10::SymIntArrayRef sizes, std::optional<at::ScalarType> dtype,
                               std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>,
                               std::optional<at::MemoryFormat>) {
  const auto shape = C10_AS_INTARRAYREF_SLOW(sizes);
  return empty(shape, c10::contiguous_strides(shape), dtype.value_or(at::kFloat));
}

at::Tensor empty_strided(c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return empty(C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides), dtype.value_or(at::kFloat));
}

at::Tensor as_strided(const at::Tensor& self, c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides,
                      std::optional<c10::SymInt> offset) {
  return at::native::as_strided_tensorimpl(
      self, C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides),
      offset ? std::optional(offset->guard_int(__FILE__, __LINE__)) : std::nullopt);
}

at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef sizes) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(sizes));
}

// Copies as CUDA does: blocks the host between device and host, unless the host's memory is pinned and non_blocking is
// set.
at::Tensor& copy_(at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  const at::NoGradGuard no_grad;
  if (self.is_same(src)) return self;
  const bool within = is_here(self) && is_here(src);
  const at::Tensor& host = is_here(self) ? src : self;
  const bool is_beside = within || (non_blocking && State::get().is_pinned(host.storage().data()));
  std::vector<Use> uses = {{bytes_of(self), true, "self"}, {bytes_of(src), false, "src"}};
  State::get().queue(current_stream(),
                     within          ? "aten::copy_"
                     : is_here(self) ? "copy to device"
                                     : "copy to host",
                     uses);
  if (!is_beside) synchronize(is_here(self) ? "a blocking copy to the device" : "a blocking copy to the host");
  const at::DisableRecordFunctionGuard unseen;  // hides the call from the host watch
  on_host(self).copy_(on_host(src));
  return self;
}

std::tuple<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& grad, const at::Tensor& input,
                                                     at::IntArrayRef shape, const at::Tensor& rstd,
                                                     const std::optional<at::Tensor>& weight,
                                                     std::array<bool, 2> wanted) {
  std::vector<Use> uses = {{bytes_of(grad), false, "grad_out"}, {bytes_of(input), false, "input"}};
  const auto x = on_host(input).to(at::kFloat) * on_host(rstd);
  auto g = on_host(grad).to(at::kFloat);
  at::Tensor grad_weight, grad_input;
  if (wanted[1] && weight) {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(x.dim()) - shape.size());
    std::iota(rows.begin(), rows.end(), 0);
    grad_weight = to_device((g * x).sum(rows).to(weight->scalar_type()));
    uses.push_back({bytes_of(grad_weight), true, "grad_weight"});
  }
  if (weight) {
    uses.push_back({bytes_of(*weight), false, "weight"});
    g = g * on_host(*weight).to(at::kFloat);
  }
  if (wanted[0]) {
    const auto mean = (g * x).mean(-1, /*keepdim=*/true);
    grad_input = to_device(((g - x * mean) * on_host(rstd)).to(input.scalar_type()).contiguous());
    uses.push_back({bytes_of(grad_input), true, "grad_input"});
  }
  State::get().queue(current_stream(), "aten::_fused_rms_norm_backward", uses);
  return {grad_input, grad_weight};
}

}  // namespace

void install_allocator() { c10::SetAllocator(c10::DeviceType::PrivateUse1, &allocator(), /*priority=*/100); }

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", empty_memory_format);
  library.impl("empty_strided", empty_strided);
  library.impl("as_strided", as_strided);
  library.impl("view", view);
  library.impl("copy_", copy_);
  library.impl("_fused_rms_norm_backward", rms_norm_backward);
  // Operators that a GPU runs as one kernel, and other devices as several.
  for (const char* name : {"_chunk_cat.out", "_foreach_add_.Scalar", "_foreach_add_.Tensor", "_foreach_copy_",
                           "_foreach_mul_.Scalar", "_foreach_mul_.Tensor", "_foreach_norm.Scalar", "_fused_rms_norm",
                           "silu_backward", "split_with_sizes_copy.out"})
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

}  // namespace titan::sim

#include "distributed/process_group.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <new>
#include <string_view>

#include "base/error.h"
#include "base/limits/system_limits.h"
#include "distributed/accelerator/device_error.h"
#include "distributed/accelerator/device_queue.h"
#include "distributed/collective_trace.h"
#include "distributed/flight/fault_point.h"
#include "distributed/flight/flight_recorder.h"
#include "distributed/shared_memory/shared_memory_backend.h"
#include "trace/named_range.h"
#include "trace/planned_collectives.h"

namespace titan::dist {
namespace {

c10d::ReduceOp to_c10d(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return c10d::ReduceOp::SUM;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    case ReduceOp::kAvg:
      return c10d::ReduceOp::AVG;
  }
  throw InternalError("unknown reduce operation");
}

template <typename... Errors>
bool is_one_of(const std::exception& error) {
  return (dynamic_cast<const Errors*>(&error) || ...);
}

// True if this rank alone caused the error of a collective: it has no memory for its buffers, made a wrong call, or
// its device failed, which surfaces in whatever is called next.
bool is_of_this_rank(const std::exception& error) {
  return is_one_of<std::bad_alloc, c10::OutOfMemoryError, c10::ValueError, c10::TypeError, c10::IndexError,
                   c10::NotImplementedError, c10::AcceleratorError>(error) ||
         is_device_error(error.what()) || is_lack_of_threads(error) ||
         std::string_view(error.what()).find("can't allocate memory") != std::string_view::npos;  // torch's on a CPU
}

// Call from the catch block of `error`. Rethrows it unchanged if this rank alone caused it. Otherwise throws
// PeerError: the error for a lost peer differs by backend and moment, but to the user it is one event.
[[noreturn]] void throw_peer_error(const CollectiveTicket& ticket, const std::exception& error) {
  flight_recorder().fail(ticket);
  if (is_of_this_rank(error)) throw;
  throw PeerError(flight_recorder().describe(ticket) + " failed: a peer rank ended or did not answer in time (" +
                  reason_in(error.what()) + ")");
}

// The next three are for faults that tests order (flight/fault_point.h). They start collectives of zeros.

at::TensorOptions options_of_another_dtype(const at::Tensor& tensor) {
  return tensor.options().dtype(tensor.scalar_type() == at::kFloat ? at::kDouble : at::kFloat);
}

Work start_another(ProcessGroup& group, std::string_view kind, std::int64_t input_numel,
                   const at::TensorOptions& options) {
  const at::Tensor input = at::zeros({input_numel}, options);
  if (kind == "all_gather") return group.all_gather(at::zeros({input_numel * group.size()}, options), input);
  if (kind == "reduce_scatter")
    return group.reduce_scatter(at::zeros({input_numel / group.size()}, options), input, ReduceOp::kSum);
  return group.all_reduce(input, ReduceOp::kSum);
}

void start_extra(ProcessGroup& group, const at::TensorOptions& options) {
  static auto& kept = *new std::vector<Work>;  // nobody waits for it
  kept.push_back(group.all_reduce(at::zeros({3}, options.dtype(at::kLong)), ReduceOp::kSum));
}

}  // namespace

void Work::wait() {
  if (!work_) return;
  auto& recorder = flight_recorder();
  const NamedRange range([&] { return "wait for " + recorder.describe(ticket_); });
  recorder.set_state(ticket_, CollectiveState::kWaiting);
  try {
    work_->wait();
  } catch (const DistError& error) {  // the ranks disagree
    recorder.fail(ticket_);
    throw DistError(recorder.describe(ticket_) + ": " + error.what());
  } catch (const std::exception& error) {
    throw_peer_error(ticket_, error);
  }
  recorder.set_state(ticket_, CollectiveState::kFinished);
  work_.reset();
}

void wait_for_all(std::vector<Work>& works) {
  for (auto& work : works) work.wait();
}

std::vector<at::Tensor> Work::wait_for_parts() {
  TITAN_CHECK(work_, "no parts to wait for");
  const auto work = work_;
  wait();
  return work->result();
}

ProcessGroup::ProcessGroup(std::string name, std::vector<int> ranks, int rank, c10::intrusive_ptr<c10d::Backend> cpu,
                           MakeBackend make_accelerator)
    : name_(std::move(name)),
      ranks_(std::move(ranks)),
      rank_(rank),
      cpu_(std::move(cpu)),
      make_accelerator_(std::move(make_accelerator)) {
  TITAN_CHECK(rank_ >= 0 && rank_ < size(),
              "group " + name_ + ": rank " + std::to_string(rank_) + " of " + std::to_string(size()));
  if (cpu_) record_ = flight_recorder().add_group(name_, ranks_);
}

void ProcessGroup::connect_accelerator() {
  if (size() == 1 || is_connected_) return;
  if (make_accelerator_) {
    accelerator_ = make_accelerator_();
    report_queue();
  }
  is_connected_ = accelerator_ || is_fake();
}

// Tells the flight recorder, which outlives this group, how to ask for the collectives that the device has not
// finished.
void ProcessGroup::report_queue() const {
  if (!dynamic_cast<DeviceQueue*>(accelerator_.get())) return;
  flight_recorder().set_device_queue(record_, [backend = c10::weak_intrusive_ptr<c10d::Backend>(accelerator_)] {
    const auto alive = backend.lock();
    auto* const queue = dynamic_cast<DeviceQueue*>(alive.get());
    return queue ? queue->num_unfinished() : 0;
  });
}

c10d::Backend& ProcessGroup::backend(const at::Tensor& tensor) {
  if (!tensor.is_cpu()) connect_accelerator();
  const auto& backend = tensor.is_cpu() ? cpu_ : accelerator_;
  TITAN_CHECK(backend, "group " + name_ + " has no backend for tensors on " + tensor.device().str());
  return *backend;
}

CollectivesInMemory* ProcessGroup::memory_backend(at::Device device) const {
  return device.is_cpu() ? dynamic_cast<CollectivesInMemory*>(cpu_.get()) : nullptr;
}

template <typename Start>
Work ProcessGroup::start(const char* what, const at::Tensor& tensor, std::int64_t input_numel,
                         std::int64_t output_numel, Start&& start) {
  if (is_fake() && tensor.is_meta()) {
    connect_accelerator();
    plan_collective(what, name_,
                    std::max(input_numel, output_numel) * static_cast<std::int64_t>(tensor.element_size()));
    return {};
  }
  if (has_fault_point) [[unlikely]] {
    const Fault fault = meet_fault(ranks_[rank_], what);
    if (fault != Fault::kNone && fault != Fault::kExtra)
      return start_another(*this, what, fault == Fault::kShape ? input_numel + size() : input_numel,
                           fault == Fault::kDtype ? options_of_another_dtype(tensor) : tensor.options());
    if (fault == Fault::kExtra) start_extra(*this, tensor.options());
  }
  trace_collective(ranks_[rank_], what, name_, input_numel, output_numel, tensor.scalar_type());
  const auto ticket = record_ < 0
                          ? CollectiveTicket{.kind = what}
                          : flight_recorder().start(record_, what, input_numel, output_numel, tensor.scalar_type(),
                                                    /*on_device=*/!tensor.is_cpu());
  const NamedRange range([&] { return flight_recorder().describe(ticket); });
  try {
    Work work(start(), ticket);
    flight_recorder().set_state(ticket, CollectiveState::kStarted);
    return work;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw_peer_error(ticket, error);
  }
}

Work ProcessGroup::all_gather(at::Tensor output, at::Tensor input) {
  TITAN_CHECK(output.numel() == input.numel() * size(), "all_gather: output has " + std::to_string(output.numel()) +
                                                            " elements, input " + std::to_string(input.numel()) +
                                                            ", group " + std::to_string(size()));
  if (size() == 1) {
    if (output.data_ptr() != input.data_ptr()) output.view(-1).copy_(input.view(-1));
    return {};
  }
  return start("all_gather", input, input.numel(), output.numel(), [&] {
    at::Tensor all = output.view(-1), own = input.view(-1);  // Gloo compares shapes
    return backend(input)._allgather_base(all, own);
  });
}

Work ProcessGroup::all_gather_parts(at::Tensor input) {
  TITAN_CHECK(shares_memory(input.device()), "all_gather_parts over '" + name_ + "', whose ranks share no memory");
  return start("all_gather", input, input.numel(), input.numel() * size(), [&] {
    std::vector<std::vector<at::Tensor>> none;
    std::vector<at::Tensor> inputs = {input};
    return backend(input).allgather(none, inputs);
  });
}

bool ProcessGroup::gathers_in_place(std::int64_t numel, const at::TensorOptions& options) const {
  const auto* const backend = memory_backend(options.device());
  return backend && size() > 2 && backend->can_allocate(options.dtype().toScalarType(), numel);
}

GatheredInPlace ProcessGroup::all_gather_in_place(std::int64_t numel, const at::TensorOptions& options,
                                                  std::int64_t input_numel,
                                                  std::function<void(const at::Tensor&)> write) {
  auto* const backend = memory_backend(options.device());
  TITAN_CHECK(backend, "all_gather_in_place over '" + name_ + "', whose ranks share no memory");
  at::Tensor output;
  auto work = start("all_gather", at::empty({0}, options), input_numel, input_numel * size(), [&] {
    auto started = backend->all_gather_in_place(options.dtype().toScalarType(), numel, std::move(write));
    output = std::move(started.output);
    return started.work;
  });
  return {std::move(output), std::move(work)};
}

Work ProcessGroup::reduce_scatter(at::Tensor output, at::Tensor input, ReduceOp op) {
  TITAN_CHECK(input.numel() == output.numel() * size(), "reduce_scatter: input has " + std::to_string(input.numel()) +
                                                            " elements, output " + std::to_string(output.numel()));
  if (size() == 1) {
    output.view(-1).copy_(input.view(-1));
    return {};
  }
  return start("reduce_scatter", input, input.numel(), output.numel(), [&] {
    c10d::ReduceScatterOptions options;
    options.reduceOp = to_c10d(op);
    at::Tensor own = output.view(-1), all = input.view(-1);
    return backend(input)._reduce_scatter_base(own, all, options);
  });
}

Work ProcessGroup::reduce_scatter_parts(at::Tensor own, at::Tensor others, at::ScalarType dtype, ReduceOp op) {
  auto* const backend = memory_backend(own.device());
  TITAN_CHECK(backend, "reduce_scatter_parts over '" + name_ + "', whose ranks share no memory");
  TITAN_CHECK(others.numel() == own.numel() * (size() - 1), "reduce_scatter_parts: the others' parts have " +
                                                                std::to_string(others.numel()) + " elements, own " +
                                                                std::to_string(own.numel()));
  return start("reduce_scatter", at::empty({0}, own.options().dtype(dtype)), own.numel() * size(), own.numel(),
               [&] { return backend->reduce_scatter_parts(own, others, dtype, to_c10d(op)); });
}

Work ProcessGroup::all_reduce(at::Tensor tensor, ReduceOp op) {
  if (size() == 1) return {};
  return start("all_reduce", tensor, tensor.numel(), tensor.numel(), [&] {
    std::vector<at::Tensor> tensors = {tensor};
    c10d::AllreduceOptions options;
    options.reduceOp = to_c10d(op);
    return backend(tensor).allreduce(tensors, options);
  });
}

Work ProcessGroup::broadcast(at::Tensor tensor, int root) {
  if (size() == 1) return {};
  return start("broadcast", tensor, tensor.numel(), tensor.numel(), [&] {
    std::vector<at::Tensor> tensors = {tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return backend(tensor).broadcast(tensors, options);
  });
}

void ProcessGroup::barrier() {
  if (size() == 1) return;
  TITAN_CHECK(cpu_, "group " + name_ + " is fake (it belongs to a dry run)");
  const at::Tensor nothing = at::empty({0});
  start("barrier", nothing, 0, 0, [&] { return cpu_->barrier(c10d::BarrierOptions()); }).wait();
}

Work ProcessGroup::send(at::Tensor tensor, int to) { return exchange({{std::move(tensor), to}}, {}).front(); }

Work ProcessGroup::receive(at::Tensor tensor, int from) { return exchange({}, {{std::move(tensor), from}}).front(); }

void ProcessGroup::check(const Transfer& transfer, const char* kind, at::Device device) const {
  const auto what = std::string(kind) + " over '" + name_ + "': ";
  TITAN_CHECK(transfer.peer >= 0 && transfer.peer < size(), what + "the group has " + std::to_string(size()) +
                                                                " ranks, and none is " + std::to_string(transfer.peer));
  TITAN_CHECK(transfer.peer != rank_, what + "rank " + std::to_string(rank_) + " of the group is this rank itself");
  TITAN_CHECK(transfer.tensor.is_contiguous(), what + "the tensor is not contiguous");
  TITAN_CHECK(transfer.tensor.device() == device, what + "the tensors of one exchange are on several devices");
}

CollectiveTicket ProcessGroup::record(const Transfer& transfer, bool is_send) const {
  const auto numel = transfer.tensor.numel();
  const auto dtype = transfer.tensor.scalar_type();
  const auto kind = (is_send ? "send_to_" : "receive_from_") + std::to_string(ranks_[transfer.peer]);
  trace_collective(ranks_[rank_], kind.c_str(), name_, is_send ? numel : 0, is_send ? 0 : numel, dtype);
  auto& recorder = flight_recorder();
  return is_send ? recorder.start_send(record_, transfer.peer, numel, dtype)
                 : recorder.start_receive(record_, transfer.peer, numel, dtype);
}

std::vector<Work> ProcessGroup::exchange(const std::vector<Transfer>& sends, const std::vector<Transfer>& receives) {
  std::vector<std::pair<const Transfer*, bool>> all;  // true: a send
  for (const auto& transfer : sends) all.emplace_back(&transfer, true);
  for (const auto& transfer : receives) all.emplace_back(&transfer, false);
  if (all.empty()) return {};
  const auto& first = all.front().first->tensor;
  for (const auto& [transfer, is_send] : all) check(*transfer, is_send ? "send" : "receive", first.device());
  if (is_fake() && first.is_meta()) {
    connect_accelerator();
    for (const auto& [transfer, is_send] : all)
      plan_collective(is_send ? "send" : "receive", name_, static_cast<std::int64_t>(transfer->tensor.nbytes()));
    return std::vector<Work>(all.size());
  }
  auto& transport = backend(first);
  std::vector<CollectiveTicket> tickets;
  for (const auto& [transfer, is_send] : all) tickets.push_back(record(*transfer, is_send));
  const NamedRange range(
      [&] { return flight_recorder().describe(tickets.front()) + (all.size() > 1 ? " and others" : ""); });
  std::vector<c10::intrusive_ptr<c10d::Work>> started;
  try {
    const at::NoGradGuard no_grad;
    const bool is_batch = transport.supportsCoalescing();
    if (is_batch) transport.startCoalescing();
    for (const auto& [transfer, is_send] : all) {
      // A backend sends bytes, so it need not know the dtype.
      std::vector<at::Tensor> bytes = {transfer->tensor.view(-1).view(at::kByte)};
      started.push_back(is_send ? transport.send(bytes, transfer->peer, 0) : transport.recv(bytes, transfer->peer, 0));
    }
    if (is_batch) started.assign(all.size(), transport.endCoalescing());
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw_peer_error(tickets[std::min(started.size(), tickets.size() - 1)], error);
  }
  std::vector<Work> works;
  for (std::size_t i = 0; i < all.size(); ++i) {
    flight_recorder().set_state(tickets[i], CollectiveState::kStarted);
    works.emplace_back(std::move(started[i]), tickets[i]);
  }
  return works;
}

std::vector<std::string> ProcessGroup::all_gather_bytes(const std::string& bytes) {
  if (is_fake()) return std::vector<std::string>(static_cast<std::size_t>(size()), bytes);
  auto length = at::full({1}, static_cast<std::int64_t>(bytes.size()), at::kLong);
  auto lengths = at::empty({size()}, at::kLong);
  all_gather(lengths, length).wait();
  const auto longest = lengths.max().item<std::int64_t>();
  auto mine = at::zeros({longest}, at::kByte);
  std::ranges::copy(bytes, static_cast<char*>(mine.data_ptr()));
  auto all = at::empty({size() * longest}, at::kByte);
  if (longest > 0) all_gather(all, mine).wait();
  std::vector<std::string> out;
  const auto* base = static_cast<const char*>(all.data_ptr());
  for (int r = 0; r < size(); ++r) {
    out.emplace_back(longest > 0 ? base + r * longest : "", static_cast<std::size_t>(lengths[r].item<std::int64_t>()));
  }
  return out;
}

std::string ProcessGroup::broadcast_bytes(const std::string& bytes, int root) {
  if (is_fake()) return bytes;
  auto length = at::full({1}, static_cast<std::int64_t>(bytes.size()), at::kLong);
  broadcast(length, root).wait();
  auto buffer = at::empty({length.item<std::int64_t>()}, at::kByte);
  if (rank() == root) std::ranges::copy(bytes, static_cast<char*>(buffer.data_ptr()));
  if (buffer.numel() > 0) broadcast(buffer, root).wait();
  return {static_cast<const char*>(buffer.data_ptr()), static_cast<std::size_t>(buffer.numel())};
}

bool ProcessGroup::shares_memory(at::Device device) const {
  return device.is_cpu() && cpu_ && cpu_->supportsTensorAlloc(0);
}

at::Tensor ProcessGroup::exchange_buffer(std::int64_t numel, const at::TensorOptions& options) const {
  if (shares_memory(options.device())) return cpu_->allocateTensor(static_cast<long>(numel), options);
  return at::empty({numel}, options);
}

void ProcessGroup::set_runs_beside() {
  if (record_ >= 0) flight_recorder().set_runs_beside(record_);
}

void ProcessGroup::set_timeout(std::chrono::milliseconds timeout) {
  if (cpu_) cpu_->setTimeout(timeout);
  if (accelerator_) accelerator_->setTimeout(timeout);
}

}  // namespace titan::dist

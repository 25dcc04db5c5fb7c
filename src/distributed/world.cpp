#include "distributed/world.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <numeric>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "base/error.h"
#include "base/limits/system_limits.h"
#include "base/process/common_error.h"
#include "base/process/last_word.h"
#include "base/process/phase.h"
#include "base/process/program_name.h"
#include "base/process/rank_process.h"
#include "base/process/signal.h"
#include "base/utf8.h"
#include "distributed/accelerator/device_error.h"
#include "distributed/device.h"
#include "distributed/failure_watch.h"
#include "distributed/flight/dump.h"
#include "distributed/hang_report.h"
#include "distributed/host_staged_backend.h"
#include "distributed/process_group_gloo.h"
#include "distributed/rendezvous.h"
#include "distributed/shared_memory/shared_memory_backend.h"

namespace titan::dist {
namespace {

// True if accelerator tensors go through Gloo (TITAN_DEVICE_COMM). Several ranks can then share one device, to test
// sharding.
bool ranks_share_devices() {
  const auto comm = get_env("TITAN_DEVICE_COMM").value_or("nccl");
  if (comm != "nccl" && comm != "gloo") {
    throw ConfigError("environment: TITAN_DEVICE_COMM=" + comm + ": expected nccl or gloo");
  }
  return comm == "gloo";
}

c10::Device pick_device(const LaunchEnv& env, c10::DeviceType type) {
  if (type == c10::DeviceType::CPU) return c10::Device(type);
  const auto* module = accelerator();
  TITAN_CHECK(module && module->type == type, "the accelerator module is not loaded");
  const int count = module->device_count();
  // A rank that sees only one device uses it; check_devices_differ() finds out if other ranks do too.
  const bool wraps = ranks_share_devices() || count == 1;
  const auto index = static_cast<int>(wraps ? env.local_rank % std::max(count, 1) : env.local_rank);
  if (index >= count) {
    throw DistError("local rank " + std::to_string(env.local_rank) + " has no device: this host shows " +
                    std::to_string(count) +
                    " CUDA device(s). Start at most that many ranks a host, or check CUDA_VISIBLE_DEVICES. "
                    "TITAN_DEVICE_COMM=gloo lets ranks share a device, slowly, for tests");
  }
  module->set_device(index);
  return {type, static_cast<c10::DeviceIndex>(index)};
}

// Exchanges `own` between the ranks. Returns the texts of all ranks, in rank order, after waiting for all of them.
// Collective over the ranks of `store`; keys in it start with `prefix`.
std::vector<std::string> texts_of_ranks(c10d::Store& store, const LaunchEnv& env, const std::string& prefix,
                                        const std::string& own) {
  store.set(prefix + std::to_string(env.rank), std::vector<std::uint8_t>(own.begin(), own.end()));
  std::vector<std::string> keys, texts;
  for (std::int64_t r = 0; r < env.world_size; ++r) keys.push_back(prefix + std::to_string(r));
  for (const auto& text : store.multiGet(keys)) texts.emplace_back(text.begin(), text.end());
  return texts;
}

// Waits on the rank that serves the store, for a limited time, until all ranks have read: the store ends with that
// rank.
void wait_until_all_have_read(c10d::Store& store, const LaunchEnv& env) {
  constexpr const char* kRead = "titan/device/read";
  store.add(kRead, 1);
  const auto deadline = std::chrono::steady_clock::now() + kFailurePatience;
  while (env.rank == 0 && store.add(kRead, 0) < env.world_size && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

// Throws if two ranks have the same device; NCCL would fail later and less clearly. Collective over the ranks of
// `store`.
void check_devices_differ(c10d::Store& store, const LaunchEnv& env, int index) {
  const auto& module = *accelerator();
  if (ranks_share_devices() || !module.device_uuid) return;
  std::map<std::string, std::size_t> ranks;
  std::vector<std::string> devices;
  try {
    devices = texts_of_ranks(store, env, "titan/device/", own_process().machine + " " + module.device_uuid(index));
  } catch (const std::exception& error) {
    throw DistError("the ranks cannot tell each other which devices they have: " + reason_in(error.what()) +
                    ". Did a rank fail to start?");
  }
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const auto [first, is_new] = ranks.emplace(devices[rank], rank);
    if (is_new) continue;
    wait_until_all_have_read(store, env);
    throw ConfigError(
        "error: ranks " + std::to_string(first->second) + " and " + std::to_string(rank) +
        " have the same CUDA device, and each takes one of its own; start at most as many ranks as this "
        "machine has devices, or show each rank another one (CUDA_VISIBLE_DEVICES, srun --gpus-per-task=1)"
        ". TITAN_DEVICE_COMM=gloo lets ranks share a device, slowly, for tests");
  }
}

// Returns the index of `rank` in `ranks`; the number of ranks if it is not one of them.
int index_of(int rank, const std::vector<int>& ranks) {
  return static_cast<int>(std::ranges::find(ranks, rank) - ranks.begin());
}

// The world, for callers that cannot be passed it.
std::atomic<World*> g_world = nullptr;

// The rank of this process among those that it watches.
std::atomic<int> g_rank = 0;

// Held by the thread that reports the failure and ends the process: the watch or the training thread. Never released.
std::mutex g_last_word;

// Says that a stop was requested in vain, if it was. The state of the step before is not saved instead: every rank
// would have to, on its thread that trains, and one of these hangs.
void say_if_not_stopped(int rank) {
  const auto signal = stop_requested();
  if (!signal) return;
  const auto step = phase_log().step();
  const std::string what = phase_log().current() == Phase::kCheckpoint ? "the save"
                           : step > 0                                  ? "step " + std::to_string(step)
                                                                       : "the start";
  std::fprintf(stderr,
               "%s: rank %d: %s asked to stop, but %s did not end, and the ranks can only save after a step, all "
               "together: this stop saved nothing\n",
               program_name(), rank, signal_name(*signal).c_str(), what.c_str());
}

// Reports an error that all ranks have alike, and waits for its place to end. Returns true if another rank prints it.
bool report_alike(FailureBoard& board, const std::string& reason, int exit_code) {
  const bool is_told = report_common_failure(board, reason, exit_code) && wait_for_printer(board);
  leave_in_order(board, "rank 0");
  expect_teller(false);  // from here on an exit is in order
  return is_told && board.rank != 0;
}

// Ends the process with an error that all ranks have alike, and that this rank's own thread has not reported yet.
[[noreturn]] void end_alike(FailureBoard& board, const WrittenFailure& failure) {
  if (board.rank == 0) {
    const std::string text = printable(failure.reason + failure.further_lines);
    std::fprintf(stderr, "%s: %s\n", program_name(), text.c_str());
  }
  std::fflush(nullptr);
  leave_in_order(board, failure.reason);
  _exit(failure.common_code);
}

// Ends the process from the watch's thread or from the training thread: the other one may be blocked for minutes.
[[noreturn]] void end_process(FailureBoard& board, const std::string& reason) {
  g_last_word.lock();
  if (const auto ending = ending_under_way(); ending && ending->cause == Ending::Cause::kAsked) {
    leave_in_order(board, reason);  // this rank was asked, too, and has said so; another one was first to tell
    _exit(128 + ending->number);
  }
  if (const auto heard = board.heard->get(); heard && heard->is_common()) end_alike(board, *heard);
  say_if_not_stopped(board.rank);
  std::fprintf(stderr, "%s: rank %d: stops: %s\n", program_name(), board.rank, reason.c_str());
  std::fflush(nullptr);
  leave_in_order(board, reason);
  if (!wait_for_dump(kFailurePatience)) {
    std::fprintf(stderr, "%s: rank %d: %s is not complete\n", program_name(), board.rank, dump_file().c_str());
    std::fflush(nullptr);
  }
  _exit(kExitPeerFailed);
}

// Returns " in step 12"; empty before the first.
std::string in_step() {
  const auto step = phase_log().step();
  return step > 0 ? " in step " + std::to_string(step) : "";
}

std::string reason_of(const Ending& ending) {
  switch (ending.cause) {
    case Ending::Cause::kCrash:
      return "ended by " + signal_name(ending.number) + in_step() + "; its standard error has the stack";
    case Ending::Cause::kAsked:
      return "was asked to stop (" + signal_name(ending.number) + ") and ended at once" + in_step();
    case Ending::Cause::kExit:
      return "ended by exit(" + std::to_string(ending.number) + ")" + in_step() +
             ", called by a library or by code that it runs; its standard error may say more";
  }
  return "";
}

// Tells the other ranks why this process is about to end. Runs on the watch's thread.
void tell_of_ending(FailureBoard& board) {
  const auto ending = ending_to_tell();
  if (!ending) return;
  dist::report_failure(board, board.rank, reason_of(*ending));
  leave_in_order(board, "rank " + std::to_string(board.rank));
  ending_is_told();
}

// Runs where a library calls exit() in the middle of a run, as OpenMP's does if it cannot start a thread. Does not run
// the destructors that would follow: other threads use what they destroy.
void end_after_exit(int status, void* /*unused*/) {
  if (!is_teller_expected()) return;
  const Ending ending{Ending::Cause::kExit, status};
  std::fprintf(stderr, "%s: rank %d: %s\n", program_name(), g_rank.load(), reason_of(ending).c_str());
  std::fflush(nullptr);
  let_it_be_told(ending);
  _exit(status == kExitDone ? kExitFailed : status);
}

void expect_teller_of(int rank) {
  g_rank = rank;
  static const int registered = ::on_exit(end_after_exit, nullptr);
  static_cast<void>(registered);
  expect_teller(true);
}

}  // namespace

World::World(const LaunchEnv& env, c10::DeviceType device_type, std::chrono::milliseconds init_timeout)
    : env_(env), device_(pick_device(env, device_type)), timeout_(init_timeout) {
  if (env_.world_size > 1) {
    check_gloo_interface_variable();
    store_ = connect_store(env_, timeout_);
  }
  if (store_ && !device_.is_cpu()) check_devices_differ(*store_, env_, device_.index());
  std::vector<int> all(static_cast<std::size_t>(env_.world_size));
  std::iota(all.begin(), all.end(), 0);
  group_ = make_group("world", all);
  if (store_) {
    watch_failures();
    forget_port_file(env_);
  }
}

void World::watch_failures() {
  FailureBoard board{store_, rank(), env_.use_agent_store ? -1 : 0, {}};
  for (const auto& text : texts_of_ranks(*store_, env_, "titan/process/", to_text(own_process())))
    board.processes.push_back(rank_process_from_text(text));
  // Every rank knows all others from here on, and none has left.
  group_->barrier();
  board_ = std::make_unique<FailureBoard>(board);
  board.store = clone_store(store_);
  watch_ = std::make_unique<FailureWatch>(
      board, [board](const std::string& reason) mutable { end_process(board, reason); },
      [answer = HangAnswer()](FailureBoard& own) mutable {
        tell_of_ending(own);
        answer.look(own);
      });
  expect_teller_of(rank());
  g_world = this;
}

World::World(int fake_world_size, int fake_rank) : device_(c10::DeviceType::Meta), timeout_(0) {
  TITAN_CHECK(fake_rank >= 0 && fake_rank < fake_world_size,
              "rank " + std::to_string(fake_rank) + " of a fake job of " + std::to_string(fake_world_size));
  env_.world_size = fake_world_size;
  env_.rank = fake_rank;
  std::vector<int> all(static_cast<std::size_t>(fake_world_size));
  std::iota(all.begin(), all.end(), 0);
  group_ = make_group("world", all);
}

std::unique_ptr<World> World::fake(int world_size, int rank) {
  return std::unique_ptr<World>(new World(world_size, rank));
}

World::~World() {
  World* self = this;
  if (g_world.compare_exchange_strong(self, nullptr)) expect_teller(false);
}

// The same on all ranks. In a job on several machines, false until the ranks have exchanged their machines.
bool World::are_on_one_machine(const std::vector<int>& ranks) const {
  if (env_.local_world_size == env_.world_size) return true;
  if (!board_) return false;
  const auto machine = [&](int r) { return board_->processes.at(static_cast<std::size_t>(r)).machine; };
  return !machine(ranks[0]).empty() &&
         std::ranges::all_of(ranks, [&](int r) { return machine(r) == machine(ranks[0]); });
}

c10::intrusive_ptr<c10d::Backend> World::make_cpu_backend(const std::string& prefix, const std::vector<int>& ranks) {
  const bool local_only = are_on_one_machine(ranks);
  auto gloo = make_gloo_backend(c10::make_intrusive<c10d::PrefixStore>(prefix + "/gloo", store_),
                                index_of(rank(), ranks), static_cast<int>(ranks.size()), timeout_, local_only);
  if (!local_only || get_env("TITAN_SHARED_MEMORY").value_or("1") == "0") return gloo;
  c10d::PrefixStore store(prefix + "/memory", store_);
  return make_shared_memory_backend(std::move(gloo), store, rank(), timeout_);
}

c10::intrusive_ptr<c10d::Backend> World::make_accelerator_backend(const std::string& prefix,
                                                                  const std::vector<int>& ranks) {
  if (ranks_share_devices()) return make_host_staged_backend(make_cpu_backend(prefix + "/device", ranks));
  return accelerator()->make_backend(c10::make_intrusive<c10d::PrefixStore>(prefix + "/device", store_),
                                     index_of(rank(), ranks), static_cast<int>(ranks.size()), timeout_);
}

int World::num_communicators() const {
  return static_cast<int>(
      std::ranges::count_if(groups_, [](const auto& each) { return each.second->has_accelerator(); }));
}

c10::intrusive_ptr<c10d::Backend> World::connect(const std::string& name, std::size_t num_ranks,
                                                 const ProcessGroup::MakeBackend& make) const {
  try {
    return make();
  } catch (const std::exception& error) {
    const std::string reason = reason_in(error.what()), with_limit = with_limits(reason);
    throw DistError("cannot connect the " + std::to_string(num_ranks) + " ranks of group '" + name + "': " +
                    with_limit + (with_limit == reason ? advice_to_connect(error.what(), !device_.is_cpu()) : ""));
  }
}

std::shared_ptr<ProcessGroup> World::make_group(const std::string& name, const std::vector<int>& ranks) {
  if (const auto found = groups_.find(ranks); found != groups_.end()) return found->second;
  const int group_rank = index_of(rank(), ranks);
  const int size = static_cast<int>(ranks.size());
  TITAN_CHECK(group_rank < size, "group " + name + " does not hold this rank");
  c10::intrusive_ptr<c10d::Backend> cpu;
  ProcessGroup::MakeBackend make_accelerator;
  if (size > 1 && store_) {
    std::string prefix = "titan/group";
    for (const int r : ranks) prefix.append(",").append(std::to_string(r));
    cpu = connect(name, ranks.size(), [&] { return make_cpu_backend(prefix, ranks); });
    if (!device_.is_cpu())
      make_accelerator = [this, name, prefix, ranks] {
        return connect(name, ranks.size(), [&] { return make_accelerator_backend(prefix, ranks); });
      };
  }
  auto group = std::make_shared<ProcessGroup>(name, ranks, group_rank, std::move(cpu), std::move(make_accelerator));
  groups_.emplace(ranks, group);
  return group;
}

ProcessGroup& World::own_group(const std::string& name) {
  c10::intrusive_ptr<c10d::Backend> cpu;
  if (size() > 1 && store_) cpu = make_cpu_backend("titan/own/" + name, group_->ranks());
  own_groups_.push_back(std::make_shared<ProcessGroup>(name, group_->ranks(), rank(), std::move(cpu)));
  own_groups_.back()->set_runs_beside();
  return *own_groups_.back();
}

void World::set_timeout(std::chrono::milliseconds timeout) {
  timeout_ = timeout;
  for (auto& [ranks, group] : groups_) group->set_timeout(timeout);
}

bool World::report_failure(const std::string& reason) noexcept {
  if (!board_) return false;
  g_last_word.lock();
  if (const auto code = code_of_common_error(reason)) return report_alike(*board_, reason, *code);
  const auto speaker = dist::report_failure(*board_, rank(), reason);
  leave_in_order(*board_, "rank " + std::to_string(speaker.value_or(rank())));
  expect_teller(false);  // from here on an exit is in order
  return speaker && life_of(board_->processes[*speaker]) != Life::kRuns;
}

void World::stop(const std::string& symptom) noexcept {
  FailureBoard alone{nullptr, rank(), -1, {}};
  FailureBoard& board = board_ ? *board_ : alone;
  end_process(board, board_ ? diagnose_hang(board, symptom) : symptom);
}

void World::stop_apart(const std::string& symptom) noexcept {
  try {
    FailureBoard board = *board_;
    board.store = clone_store(store_);  // the training thread may be using the other one
    end_process(board, diagnose_hang(board, symptom));
  } catch (const std::exception&) {  // the store is gone: the symptom is all there is
  }
}

void World::fail_apart(const std::string& reason) noexcept {
  g_last_word.lock();
  std::fprintf(stderr, "%s: rank %d: %s\n", program_name(), rank(), reason.c_str());
  std::fflush(nullptr);
  try {
    FailureBoard board = *board_;
    board.store = clone_store(store_);  // the training thread may be using the other one
    dist::report_failure(board, rank(), reason);
    leave_in_order(board, "rank " + std::to_string(rank()));
  } catch (const std::exception&) {  // the store is gone: the others find out by themselves
  }
  _exit(kExitFailed);
}

void World::shutdown() {
  if (!store_) return;
  g_world = nullptr;
  group_->barrier();
  watch_->stop();
  expect_teller(false);
  group_->barrier();
}

void stop_this_rank(const std::string& symptom) noexcept {
  World* world = g_world.exchange(nullptr);
  if (world) world->stop_apart(symptom);
}

void fail_this_rank(const std::string& reason) noexcept {
  World* world = g_world.exchange(nullptr);
  if (world) world->fail_apart(reason);
}

}  // namespace titan::dist

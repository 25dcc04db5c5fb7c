// Tests how a failed collective is reported: as the loss of a peer, or as an error of this rank.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <new>
#include <stdexcept>

#include "base/error.h"
#include "distributed/process_group.h"

namespace titan::dist {
namespace {

using testing::HasSubstr;

// A collective whose wait() calls `end`.
class EndedWork final : public c10d::Work {
 public:
  explicit EndedWork(std::function<void()> end) : end_(std::move(end)) {}
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    end_();
    return true;
  }

 private:
  std::function<void()> end_;
};

class FailingBackend final : public c10d::Backend {
 public:
  FailingBackend(std::function<void()> start, std::function<void()> end)
      : Backend(0, 2), start_(std::move(start)), end_(std::move(end)) {}
  const std::string getBackendName() const override { return "failing"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& /*tensors*/,
                                           const c10d::AllreduceOptions& /*options*/) override {
    start_();
    return c10::make_intrusive<EndedWork>(end_);
  }

 private:
  std::function<void()> start_, end_;
};

void reduce(const std::function<void()>& start, const std::function<void()>& end) {
  ProcessGroup group("world", {0, 1}, 0, c10::make_intrusive<FailingBackend>(start, end), nullptr);
  group.all_reduce(at::ones({1}), ReduceOp::kSum).wait();
}

void nothing() {}

template <typename E>
std::function<void()> throwing(const E& error) {
  return [error] { throw error; };
}

// Expects E for a failure at the start and for one at the end.
template <typename E>
void expect_thrown(const std::function<void()>& failure) {
  EXPECT_THROW(reduce(failure, nothing), E);
  EXPECT_THROW(reduce(nothing, failure), E);
}

TEST(PeerErrors, AreWhatConnectionsAndTimeLimitsThrow) {
  expect_thrown<PeerError>(throwing(std::runtime_error("Connection closed by peer [127.0.0.1]:1234")));
  expect_thrown<PeerError>([] { C10_THROW_ERROR(DistBackendError, "NCCL communicator was aborted on rank 0"); });
  expect_thrown<PeerError>([] { TORCH_CHECK(false, "Timed out waiting 1000ms for recv operation to complete"); });
  try {
    reduce(nothing, throwing(std::runtime_error("Connection closed by peer\nbacktrace")));
  } catch (const PeerError& error) {
    EXPECT_STREQ(error.what(),
                 "all_reduce over 'world' failed: a peer rank ended or did not answer in time (Connection closed by "
                 "peer)");
  }
}

TEST(PeerErrors, AreNotWhatThisRankDoesWrong) {
  expect_thrown<std::bad_alloc>(throwing(std::bad_alloc()));
  expect_thrown<c10::OutOfMemoryError>([] { TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory."); });
  expect_thrown<c10::ValueError>([] { TORCH_CHECK_VALUE(false, "expects a dense tensor"); });
  expect_thrown<c10::Error>(
      [] { TORCH_CHECK(false, "DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."); });
}

// A launcher starts again after a peer's error: a kernel that always faults would be started forever.
TEST(PeerErrors, AreNotErrorsOfThisRanksDevice) {
  expect_thrown<c10::AcceleratorError>([] {
    throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, 700, "an illegal memory access was encountered");
  });
  expect_thrown<c10::DistBackendError>([] {
    TORCH_CHECK_WITH(DistBackendError, false,
                     "NCCL error in: NCCLUtils.cpp:94, unhandled cuda error, NCCL version 2.28.9");
  });
}

TEST(PeerErrors, AreNotRanksThatDisagree) { expect_thrown<DistError>(throwing(DistError("ranks disagree"))); }

}  // namespace
}  // namespace titan::dist

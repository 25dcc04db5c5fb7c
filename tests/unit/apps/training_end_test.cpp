#include "apps/train/training_end.h"

#include <gtest/gtest.h>

#include <csignal>
#include <new>
#include <stdexcept>

namespace titan {
namespace {

using End = train::Trainer::End;

TEST(TrainingEnd, SaysHowMuchWasRefused) {
  const auto refused = [](const std::string& text) { return refused_allocation(std::runtime_error(text)); };
  // Messages of torch's allocators on the host and on a GPU.
  EXPECT_EQ(refused("[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you "
                    "tried to allocate 2147483648 bytes. Error code 12 (Cannot allocate memory)"),
            "a tensor of 2.00 GiB");
  EXPECT_EQ(refused("CUDA out of memory. Tried to allocate 3.52 GiB. GPU 0 has a total capacity of 79.10 GiB"),
            "a tensor of 3.52 GiB");
  EXPECT_EQ(refused("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
            "the workspace of a library (CUBLAS_STATUS_ALLOC_FAILED)");
  EXPECT_EQ(refused_allocation(std::bad_alloc()), "an array of the host");
  EXPECT_EQ(refused("the loss is not a number"), std::nullopt);
}

TEST(TrainingEnd, HasAnExitCodeForEachEnd) {
  EXPECT_EQ(exit_code_of_end(End::kCompleted), 0);
  EXPECT_EQ(exit_code_of_end(End::kStopped), 75);
  EXPECT_EQ(exit_code_of_end(End::kDiverged), 4);
  EXPECT_EQ(exit_code_of_end(End::kDrifted), 3);
}

}  // namespace
}  // namespace titan

// Tests the checks of titan-train doctor on made-up machines, and their report.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/doctor/axis_rates.h"
#include "apps/doctor/doctor_report.h"
#include "apps/doctor/machine.h"
#include "apps/doctor/network.h"
#include "apps/doctor/products.h"
#include "apps/doctor/rates.h"

namespace titan::doctor {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;
const std::vector<dist::Interface> kPresent = {{"lo", "127.0.0.1"}, {"eth0", "10.0.0.7"}};

LaunchEnv launch_of(std::int64_t ranks, std::int64_t local_ranks) {
  LaunchEnv launch;
  launch.launcher = Launcher::kTorchrun;
  launch.world_size = ranks;
  launch.local_world_size = local_ranks;
  launch.master_addr = "node1";
  launch.master_port = 29500;
  return launch;
}

TEST(Doctor, TheProcessorsInstructionsAreNamed) {
  const auto check = check_cpu("model name\t: Xeon\nflags\t\t: fpu avx2 avx512f amx_bf16\n");
  EXPECT_EQ(check.state, State::kOk);
  EXPECT_THAT(check.found, HasSubstr("Xeon: AVX2, AVX-512, AMX BF16; torch computes with "));
  EXPECT_EQ(check_cpu("model name\t: Old\nflags\t\t: fpu sse2\n").state, State::kWarning);
}

TEST(Doctor, MoreThreadsThanCoresAreAWarning) {
  EXPECT_EQ(check_threads(8, 4, 2, false).state, State::kOk);
  const auto check = check_threads(8, 8, 2, false);
  EXPECT_EQ(check.state, State::kWarning);
  EXPECT_EQ(check.found, "2 ranks with 8 threads on 8 cores");
  EXPECT_EQ(check.advice, "16 threads share 8 cores: set OMP_NUM_THREADS=4");
  EXPECT_EQ(check_threads(2, 2, 3, false).advice, "6 threads share 2 cores: start 2 ranks, and set OMP_NUM_THREADS=1");
  EXPECT_EQ(check_threads(1, 1, 2, false).advice, "2 threads share 1 core: start 1 rank");
  EXPECT_EQ(
      check_threads(2, 2, 8, true).advice,
      "16 threads share 2 cores: give the job 8 cores (srun --cpus-per-task, the container's limit), one for each "
      "rank, which launches its GPU's kernels, and set OMP_NUM_THREADS=1");
  EXPECT_EQ(check_threads(8, 8, 2, true).advice, check_threads(8, 8, 2, false).advice) << "the ranks are not too many";
}

TEST(Doctor, LimitsOfTheSystem) {
  EXPECT_EQ(check_memory({.bytes = 4 * kGiB}, 4).state, State::kOk);
  EXPECT_EQ(check_memory({.bytes = 3 * kGiB}, 4).state, State::kWarning);
  EXPECT_EQ(check_open_files(-1, 1000).state, State::kOk);
  EXPECT_EQ(check_open_files(1024, 8).state, State::kOk);
  EXPECT_EQ(check_open_files(1024, 256).state, State::kFailure);
  EXPECT_EQ(check_locked_memory(64 << 10, false).state, State::kOk);
  EXPECT_EQ(check_locked_memory(64 << 10, true).state, State::kWarning);
}

TEST(Doctor, SharedMemoryIsForNccl) {
  EXPECT_EQ(check_shared_memory(8 * kGiB, true, 8).state, State::kOk);
  EXPECT_EQ(check_shared_memory(64 << 20, true, 8).state, State::kFailure);
  EXPECT_EQ(check_shared_memory(64 << 20, true, 1).state, State::kWarning);
  EXPECT_EQ(check_shared_memory(64 << 20, false, 8).state, State::kWarning);
  EXPECT_EQ(check_shared_memory(-1, false, 8).state, State::kOk);
  EXPECT_EQ(check_shared_memory(-1, true, 8).state, State::kFailure);
}

TEST(Doctor, InterfacesOfVariablesMustBeThere) {
  EXPECT_EQ(check_gloo_interface("eth0", kPresent), ok("GLOO_SOCKET_IFNAME", "eth0 (10.0.0.7)"));
  const auto check = check_gloo_interface("ib0", kPresent);
  EXPECT_EQ(check.state, State::kFailure);
  EXPECT_EQ(check.found, "ib0, and this machine's interfaces are lo (127.0.0.1), eth0 (10.0.0.7)");
  EXPECT_EQ(check_nccl_interface("eth", kPresent).state, State::kOk);
  EXPECT_EQ(check_nccl_interface("=eth", kPresent).state, State::kFailure);
  EXPECT_EQ(check_nccl_interface("ib,eth", kPresent).state, State::kOk);
  EXPECT_EQ(check_nccl_interface("^lo", kPresent).state, State::kOk);
}

TEST(Doctor, OtherMachinesMustReachTheHost) {
  EXPECT_EQ(check_host_name("node1", {"10.0.0.7"}, kPresent, false).state, State::kOk);
  EXPECT_EQ(check_host_name("node1", {"127.0.0.1"}, kPresent, false).state, State::kFailure);
  EXPECT_EQ(check_host_name("node1", {"10.9.9.9"}, kPresent, false).state, State::kFailure);
  EXPECT_EQ(check_host_name("node1", {}, kPresent, false).state, State::kFailure);
  EXPECT_EQ(check_host_name("node1", {}, kPresent, true).state, State::kOk);
}

TEST(Doctor, TheMeetingPointMustBeTheSameForAll) {
  EXPECT_EQ(check_master(launch_of(4, 2), {"10.0.0.7"}), ok("meeting point", "node1:29500"));
  EXPECT_EQ(check_master(launch_of(4, 2), {"127.0.1.1"}).state, State::kFailure);
  EXPECT_EQ(check_master(launch_of(2, 2), {"127.0.0.1"}).state, State::kOk);
  EXPECT_EQ(check_master(launch_of(2, 2), {}).state, State::kFailure);
}

TEST(Doctor, ARankThatIsFarBehindIsNamed) {
  const std::vector<std::string> hosts = {"a", "a", "b", "b"};
  EXPECT_EQ(check_matmul({1e12, 1e12, 0.8e12, 1e12}, hosts, "Float").state, State::kOk);
  const auto check = check_matmul({1e12, 1e12, 0.5e12, 1e12}, hosts, "Float");
  EXPECT_EQ(check.state, State::kWarning);
  EXPECT_THAT(check.found, HasSubstr("far behind: rank 2 on b (0.50 TFLOP/s)"));
}

TEST(Doctor, ASlowAxisIsAWarningWithItsAdvice) {
  const AxisRate fast{.bytes = 64 << 20, .seconds = 0.01, .small_seconds = 25e-6};
  const auto check = check_axis("tp", "reduce-scatter between 2 ranks", fast, "keep tp inside a host");
  EXPECT_EQ(check,
            ok("axis tp", "reduce-scatter between 2 ranks: 6.71 GB/s to each (64 MiB in 10.0 ms), 25 us for 4 KiB"));
  const AxisRate slow{.bytes = 64 << 20, .seconds = 1, .small_seconds = 25e-6};
  const auto found = check_axis("tp", "reduce-scatter between 2 ranks", slow, "keep tp inside a host");
  EXPECT_EQ(found.state, State::kWarning);
  EXPECT_EQ(found.advice, "keep tp inside a host");
}

TEST(Doctor, ASlowerDtypeThanAnotherIsNamed) {
  const std::vector<ProductRate> rates = {
      {"float32", 98e9, 80e9}, {"bfloat16", 3.04e9, 2e9}, {"float16", 60.4e9, 60e9}};
  const auto check = check_products(rates, "bfloat16");
  EXPECT_EQ(check.state, State::kWarning);
  EXPECT_EQ(check.found,
            "float32: 98 forward, 80 backward; bfloat16: 3.0 forward, 2.0 backward; float16: 60 forward, 60 backward "
            "(GFLOP/s); bfloat16 takes 37.7 times as long as float32");
  EXPECT_EQ(check.advice, "set training.mixed_precision_param = \"float32\"");
  EXPECT_EQ(check_products(rates, "float16").state, State::kOk);  // 1.4 times as long
  EXPECT_EQ(check_products(rates, "float32").state, State::kOk);
  EXPECT_EQ(check_products({{"float32", 1e11, 1e11}, {"bfloat16", 1e13, 1e13}}, "float32").found,
            "float32: 100 forward, 100 backward; bfloat16: 10,000 forward, 10,000 backward (GFLOP/s); float32 takes "
            "100.0 times as long as bfloat16");
}

TEST(Doctor, AFolderThatCannotBeWrittenIsAFailure) {
  const auto check = check_disk("/proc/titan/checkpoint");
  EXPECT_EQ(check.state, State::kFailure);
  EXPECT_THAT(check.found, HasSubstr("/proc cannot be written: "));
  EXPECT_EQ(check_disk("/proc/version/checkpoint").state, State::kFailure);
  EXPECT_NE(check_disk(std::filesystem::temp_directory_path() / "titan_doctor_test" / "checkpoint").state,
            State::kFailure);
}

TEST(Doctor, WhatAllRanksFoundIsSaidOnce) {
  const Check files = ok("open files", "at most 1,024"), disk = failure("disk", "full", "make room");
  const auto findings = merge({{files, disk}, {files}, {ok("open files", "at most 64")}});
  ASSERT_EQ(findings.size(), 3U);
  EXPECT_THAT(findings[0].ranks, testing::ElementsAre(0, 1));
  EXPECT_THAT(findings[1].ranks, testing::ElementsAre(2));
  EXPECT_EQ(findings[2].check, disk);
  EXPECT_TRUE(has_failure(findings));
  EXPECT_EQ(to_text(findings),
            "ok        open files          ranks 0, 1: at most 1,024\n"
            "ok        open files          rank 2: at most 64\n"
            "failure   disk                rank 0: full\n"
            "                              to do: make room\n"
            "\n1 failure\n");
  EXPECT_THAT(to_text(merge({{files}, {files}})), HasSubstr("files          at most 1,024\n\nall is well"));
}

TEST(Doctor, ChecksTravelBetweenRanks) {
  const Checks checks = {ok("a", "b\nc"), warning("d", "e", "f"), failure("g", "\"", "")};
  EXPECT_EQ(from_message(to_message(checks)), checks);
}

}  // namespace
}  // namespace titan::doctor

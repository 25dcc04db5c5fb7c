#include "apps/doctor/rates.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>

#include "apps/doctor/best_seconds.h"
#include "apps/doctor/products.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/process/rank_process.h"
#include "base/text.h"

namespace titan::doctor {
namespace {

namespace fs = std::filesystem;
constexpr double kMiB = 1 << 20;

// Judges a collective that brings `bytes` to each rank in `seconds`.
Check check_rate(const std::string& name, double bytes, double seconds) {
  constexpr double kSlow = 0.1e9;  // a gigabit network
  const double rate = bytes / seconds;
  const std::string found =
      fmt::format("{:.2f} GB/s to each rank ({:.0f} MiB in {:.1f} ms)", rate / 1e9, bytes / kMiB, seconds * 1e3);
  if (rate >= kSlow) return ok(name, found);
  return warning(name, found,
                 "sharded training moves every parameter three times a step: use a faster network "
                 "(GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME name it), or end what else runs on these machines");
}

Checks check_collectives(dist::World& world) {
  auto& group = world.group();
  const auto size = world.size();
  if (size == 1) return {};
  const std::int64_t numel = (std::int64_t{16} << 20) / size;  // elements per rank; 64 MiB of float32 in all
  const auto options = at::TensorOptions().dtype(at::kFloat).device(world.device());
  const auto part = at::ones({numel}, options);
  const auto whole = at::ones({numel * size}, options);
  const double bytes = static_cast<double>(numel) * 4 * (size - 1);
  group.barrier();
  const double gather =
      longest_of_ranks(group, best_seconds(world.device(), [&] { group.all_gather(whole, part).wait(); }));
  group.barrier();
  const double scatter = longest_of_ranks(
      group, best_seconds(world.device(), [&] { group.reduce_scatter(part, whole, dist::ReduceOp::kSum).wait(); }));
  return {check_rate("all-gather", bytes, gather), check_rate("reduce-scatter", bytes, scatter)};
}

std::string reason() { return std::strerror(errno); }

// Returns the seconds to write and flush a file; negative on failure, with the reason in errno. Removes the file.
double write_seconds(const fs::path& file, std::size_t bytes) {
  const int descriptor = open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) return -1;
  const std::vector<char> block(std::size_t{1} << 20, 'x');
  const auto begin = std::chrono::steady_clock::now();
  bool is_written = true;
  for (std::size_t done = 0; is_written && done < bytes; done += block.size())
    is_written = write(descriptor, block.data(), block.size()) == static_cast<ssize_t>(block.size());
  is_written = is_written && fsync(descriptor) == 0;
  const int why = errno;
  const double seconds = seconds_between(begin, std::chrono::steady_clock::now());
  close(descriptor);
  unlink(file.c_str());
  errno = why;
  return is_written ? seconds : -1;
}

}  // namespace

Check check_matmul(const std::vector<double>& flops, const std::vector<std::string>& hosts, const std::string& dtype) {
  constexpr double kBehind = 0.7;
  auto sorted = flops;
  std::ranges::sort(sorted);
  const double middle = sorted[sorted.size() / 2];
  std::vector<std::string> slow;
  for (std::size_t rank = 0; rank < flops.size(); ++rank)
    if (flops[rank] < kBehind * middle)
      slow.push_back(fmt::format("rank {} on {} ({:.2f} TFLOP/s)", rank, hosts[rank], flops[rank] / 1e12));
  std::string found = fmt::format("{:.2f} TFLOP/s in {}", middle / 1e12, dtype);
  if (flops.size() > 1)
    found = fmt::format("{:.2f} to {:.2f} TFLOP/s in {}", sorted.front() / 1e12, sorted.back() / 1e12, dtype);
  if (slow.empty()) return ok("matmul", found);
  return warning("matmul", found + "; far behind: " + join(slow, ", "),
                 "every step waits for the slowest rank: see what else runs there, and its clock and temperature");
}

Checks check_ranks(dist::World& world, const std::string& dtype) {
  Checks checks = check_collectives(world);
  auto& group = world.group();
  group.barrier();  // ranks of a machine share its cores, as they do in training
  const auto rates = measure_products(world.device());
  const double own = std::ranges::find(rates, dtype, &ProductRate::dtype)->forward;
  std::vector<double> flops;
  for (const auto& text : group.all_gather_bytes(std::to_string(own))) flops.push_back(std::stod(text));
  checks.push_back(check_matmul(flops, group.all_gather_bytes(host_name()), dtype));
  checks.push_back(check_products(slowest_products(group, rates), dtype));
  return checks;
}

Check check_disk(const fs::path& folder) {
  constexpr std::size_t kBytes = std::size_t{32} << 20;
  constexpr double kSlow = 50 * kMiB;
  const std::string advice = "choose another job.dump_folder or checkpoint.folder, or make room and see who may write";
  const fs::path there = existing_part(fs::absolute(folder).lexically_normal());
  std::error_code error;
  if (!fs::is_directory(there, error))
    return failure("checkpoint disk", folder.string() + ": " + there.string() + " is not a folder", advice);
  const double seconds = write_seconds(there / fmt::format(".titan-doctor-{}", getpid()), kBytes);
  if (seconds < 0) return failure("checkpoint disk", there.string() + " cannot be written: " + reason(), advice);
  const auto space = fs::space(there, error);
  const double rate = static_cast<double>(kBytes) / std::max(seconds, 1e-9);
  const std::string found = fmt::format("{}: {}/s written and flushed, {} free", there.string(), format_bytes(rate),
                                        format_bytes(static_cast<double>(space.available)));
  if (rate >= kSlow) return ok("checkpoint disk", found);
  return warning("checkpoint disk", found,
                 "checkpoints will take long: use a faster disk, checkpoint.async_mode = \"async\", or a larger "
                 "checkpoint.interval");
}

}  // namespace titan::doctor

#include "tests/fuzz/support.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "base/fs.h"
#include "tests/unit/checkpoint/sharded_items.h"

namespace titan::fuzz {
namespace {

namespace fs = std::filesystem;

fs::path parent_of_folders;

[[noreturn]] void fail(const char* action) { throw std::system_error(errno, std::generic_category(), action); }

void write(int fd, std::string_view content) {
  if (!write_all(fd, content)) fail("writing a file of the fuzzer");
}

}  // namespace

void check_message(std::string_view message) {
  const bool says_something = std::ranges::any_of(message, [](unsigned char c) { return std::isalpha(c) != 0; });
  if (!says_something) throw Finding("an error without a message: \"" + std::string(message) + "\"");
}

std::uint64_t Input::number(int num_bytes) {
  const std::string_view part = bytes(static_cast<std::uint64_t>(num_bytes));
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < part.size(); ++i) value |= std::uint64_t{static_cast<unsigned char>(part[i])} << (8 * i);
  return value;
}

std::string_view Input::bytes(std::uint64_t count) {
  const std::string_view part = bytes_.substr(0, count);
  bytes_.remove_prefix(part.size());
  return part;
}

std::string little_endian(std::uint64_t number, int num_bytes) {
  std::string bytes;
  for (int i = 0; i < num_bytes; ++i) bytes.push_back(static_cast<char>(number >> (8 * i)));
  return bytes;
}

MemoryFile::MemoryFile() : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
  if (fd_ < 0) fail("memfd_create");
  path_ = "/proc/self/fd/" + std::to_string(fd_);
}

MemoryFile::~MemoryFile() { ::close(fd_); }

void MemoryFile::set(std::string_view content) {
  if (::ftruncate(fd_, 0) != 0 || ::lseek(fd_, 0, SEEK_SET) != 0) fail("emptying a file of the fuzzer");
  write(fd_, content);
}

void MemoryFolder::put_into(const fs::path& folder) { parent_of_folders = folder; }

MemoryFolder::MemoryFolder() {
  fs::path parent = parent_of_folders;
  if (parent.empty()) parent = fs::is_directory("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path();
  std::string name = (parent / "titan_fuzz_XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) fail("mkdtemp");
  path_ = name;
}

MemoryFolder::~MemoryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void write_over(const fs::path& file, std::string_view content) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) fail("creating a file of the fuzzer");
  write(fd, content);
  ::close(fd);
}

std::vector<checkpoint::Item> state(int rank, int num_ranks) {
  const at::Tensor weight = at::arange(15, at::kFloat).reshape({5, 3});
  std::vector<checkpoint::Item> items = {
      checkpoint::shard("w", weight, rank, num_ranks),
      checkpoint::shard("v", at::arange(6, at::kDouble), rank, num_ranks),
      checkpoint::shard("h", at::arange(12, at::kFloat).reshape({2, 3, 2}).to(at::kBFloat16), rank, num_ranks),
      checkpoint::replicate("n", at::scalar_tensor(7, at::kLong)),
      checkpoint::value("s", Value::dict({{"step", 3}, {"lr", Value::list({0.5, true})}, {"name", "x"}})),
      checkpoint::value("b", Value::tuple({Value::bytes("\x80z"), Value()}))};
  // Each of the first three ranks holds a column; the others hold none.
  const std::int64_t column = std::min<std::int64_t>(rank, 3);
  const std::int64_t columns = num_ranks == 1 ? 3 : (rank < 3 ? 1 : 0);
  checkpoint::TensorItem by_column{
      "c", {"c"}, weight.narrow(1, column, columns).clone(), {{5, 3}, {0, column}, {5, columns}}, true};
  if (num_ranks == 1 || num_ranks == 3) items.emplace_back(std::move(by_column));
  return items;
}

}  // namespace titan::fuzz

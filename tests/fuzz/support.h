// Helpers of the targets: files in memory, numbers at the front of an input, and the errors that count as refusals.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "checkpoint/dcp/item.h"
#include "checkpoint/dcp/ranks.h"

namespace titan::fuzz {

// A finding that the code under test does not notice itself.
class Finding : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

inline void require(bool condition, const char* finding) {
  if (!condition) throw Finding(finding);
}

// Throws Finding for the message of an error that says nothing.
void check_message(std::string_view message);

// Runs `body`. Returns true if it succeeds, false for an error that is meant for bad input. A broken invariant passes
// through.
template <typename Body>
bool accepts(Body&& body) {
  try {
    body();
    return true;
  } catch (const InternalError&) {
    throw;
  } catch (const Error& error) {
    check_message(error.what());
    return false;
  }
}

// Reads bytes and little-endian numbers from the front of an input; numbers have zeros past its end.
class Input {
 public:
  explicit Input(std::string_view bytes) : bytes_(bytes) {}
  std::uint64_t number(int num_bytes);
  std::string_view bytes(std::uint64_t count);
  std::string_view rest() { return bytes(bytes_.size()); }

 private:
  std::string_view bytes_;
};

// Returns `number` as `num_bytes` little-endian bytes, as Input::number() reads them.
std::string little_endian(std::uint64_t number, int num_bytes);

// A file in memory that can be opened by its path.
class MemoryFile {
 public:
  MemoryFile();
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  void set(std::string_view content);
  const std::filesystem::path& path() const { return path_; }

 private:
  int fd_;
  std::filesystem::path path_;
};

// A folder of this process, in /dev/shm if that exists; removed by the destructor.
class MemoryFolder {
 public:
  // Puts later ones into this folder, so that those of a process that crashes can be removed.
  static void put_into(const std::filesystem::path& folder);

  MemoryFolder();
  ~MemoryFolder();
  MemoryFolder(const MemoryFolder&) = delete;
  MemoryFolder& operator=(const MemoryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

void write_over(const std::filesystem::path& file, std::string_view content);

// A group of one process.
class OneRank : public checkpoint::Ranks {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::vector<std::string> all_gather(const std::string& bytes) override { return {bytes}; }
  std::string broadcast(const std::string& bytes, int) override { return bytes; }
};

// Returns the state that the seeds hold, as rank `rank` of `num_ranks` has it: tensors split along dim 0, one split
// along dim 1, and values.
std::vector<checkpoint::Item> state(int rank, int num_ranks);

}  // namespace titan::fuzz

// Reads and writes Hugging Face's safetensors files: eight bytes with the length of a JSON header, the header, the
// data. See FORMAT.md.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "facts/shard_spec.h"

namespace titan::checkpoint {

struct SafetensorsEntry {
  std::string name;
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // offset of its bytes in the file
};

// Returns the entries of a file in file order. Nothing in the file is trusted: throws CheckpointError for a header that
// is truncated, too long or malformed, an unknown dtype, or offsets that overlap, leave gaps or are outside the file.
std::vector<SafetensorsEntry> read_safetensors_header(const std::filesystem::path& path);

// Returns all *.safetensors files of a folder, sorted by name; for a file, the file itself. Throws CheckpointError if
// there are none.
std::vector<std::filesystem::path> safetensors_files(const std::filesystem::path& path);

// Returns the bytes of the entry's data. Throws CheckpointError naming `path` if the number does not fit 64 bits.
std::uint64_t bytes_of(const SafetensorsEntry& entry, const std::filesystem::path& path = "(a new file)");

// Returns the start of a file (length and header) with these tensors in this order; sets their `begin`.
std::string make_safetensors_header(std::vector<SafetensorsEntry>& entries);

// A memory-mapped file: only what is copied out of it is read.
class MappedSafetensors {
 public:
  explicit MappedSafetensors(std::filesystem::path path);
  ~MappedSafetensors();
  MappedSafetensors(const MappedSafetensors&) = delete;
  MappedSafetensors& operator=(const MappedSafetensors&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  // Copies rows of an entry of one or two dims: row i of `target` [rows, cols] is row `rows[i]`, columns `first_col`
  // onward (1-D: `target` [rows], no columns). Casts to the dtype of `target`.
  void copy_rows(const SafetensorsEntry& entry, const std::vector<std::int64_t>& rows, std::int64_t first_col,
                 at::Tensor target) const;

 private:
  std::filesystem::path path_;
  std::vector<SafetensorsEntry> entries_;
  const char* data_ = nullptr;
  std::uint64_t size_ = 0;
};

}  // namespace titan::checkpoint

// Hugging Face's safetensors files: eight bytes with the length of a JSON header, the header, the numbers. See
// FORMAT.md.
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
  std::uint64_t begin = 0;  // of its bytes in the file
};

// The entries of a file in file order. Nothing in the file is trusted: throws CheckpointError for a header that is cut,
// too long or no such JSON, an unknown dtype, or places that overlap, leave gaps or lie outside the file.
std::vector<SafetensorsEntry> read_safetensors_header(const std::filesystem::path& path);

// All *.safetensors files of a folder, sorted by name; the file itself for a file. Throws CheckpointError when there
// are none.
std::vector<std::filesystem::path> safetensors_files(const std::filesystem::path& path);

// Of the entry's numbers. Throws CheckpointError, which names `path`, when they cannot be counted.
std::uint64_t bytes_of(const SafetensorsEntry& entry, const std::filesystem::path& path = "(a new file)");

// The head of a file with these tensors one after the other; fills in `begin`.
std::string make_safetensors_header(std::vector<SafetensorsEntry>& entries);

// A file mapped into memory: only what is copied out of it is read.
class MappedSafetensors {
 public:
  explicit MappedSafetensors(std::filesystem::path path);
  ~MappedSafetensors();
  MappedSafetensors(const MappedSafetensors&) = delete;
  MappedSafetensors& operator=(const MappedSafetensors&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  // Copies rows of an entry of one or two dims: row i of `target` [rows, cols] is row `rows[i]`, columns `first_col`
  // onward (1-D: `target` [rows], no columns). Casts.
  void copy_rows(const SafetensorsEntry& entry, const std::vector<std::int64_t>& rows, std::int64_t first_col,
                 at::Tensor target) const;

 private:
  std::filesystem::path path_;
  std::vector<SafetensorsEntry> entries_;
  const char* data_ = nullptr;
  std::uint64_t size_ = 0;
};

}  // namespace titan::checkpoint

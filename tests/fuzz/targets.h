// The fuzz targets, which read untrusted bytes. Each function is one target: fuzz_<name> (libFuzzer, the preset "fuzz")
// and fuzz_regression_test (every build) run the same code.
//
// A target returns true if the bytes, or a part of them that can be read alone, were accepted, and false if they were
// refused with a titan::Error meant for bad input. Any other exception of the code under test passes through and is a
// finding: c10::Error, std::bad_alloc, InternalError.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace titan::fuzz {

// Reads a .metadata file.
bool run_metadata(std::string_view input);

// Reads one item of a .distcp file. First byte: the kind of the rest.
//   'f'  offset (4 bytes, little-endian), length (4 bytes; 2^32-1: up to the end), then the file
//   'v'  the pickle of a value, which is put into a valid archive: no checksum refuses a changed pickle
//   't'  length (2 bytes), a tensor's pickle of that many bytes, then its storage, in such an archive
bool run_distcp(std::string_view input);

// Loads a checkpoint folder. First byte: the number of ranks less 1, modulo 3 (rank 0 loads); then the length (2 bytes)
// of .metadata, as many bytes of it, and __0_0.distcp.
bool run_folder(std::string_view input);

// Reads a .safetensors file. First byte: 'f', then the file; or 'h', then its header up to the first zero byte, then
// the values.
bool run_safetensors(std::string_view input);

struct Target {
  const char* name;
  bool (*run)(std::string_view input);
};

inline constexpr std::array<Target, 4> kTargets = {
    {{"metadata", run_metadata}, {"distcp", run_distcp}, {"folder", run_folder}, {"safetensors", run_safetensors}}};

// Returns valid inputs of a target, made by the program's own writers: (name, bytes). Throws std::invalid_argument for
// an unknown target.
std::vector<std::pair<std::string, std::string>> seeds(std::string_view target);

}  // namespace titan::fuzz

// What the fuzzers do with bytes that nobody vouches for. Each function is one target: fuzz_<name> (libFuzzer, the
// preset "fuzz") and fuzz_regression_test (every build) run the same code.
//
// A target gives true when the bytes, or a part of them that can be read alone, were accepted, and false when they were
// refused with a titan::Error that is meant for bad input. Whatever else comes out of the code under test passes
// through, and is a finding: c10::Error, std::bad_alloc, InternalError.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace titan::fuzz {

// A .metadata file.
bool run_metadata(std::string_view input);

// One item of a .distcp file. First byte: the kind of the rest.
//   'f'  offset (4 bytes, little-endian), length (4 bytes; 2^32-1: up to the end), then the file
//   'v'  the pickle of a value, in an archive that is otherwise sound: no checksum stands before the pickle
//   't'  length (2 bytes), as many bytes of a tensor's pickle, then its storage, in such an archive
bool run_distcp(std::string_view input);

// A checkpoint folder. First byte: the number of ranks less 1 (of which rank 0 loads), modulo 3; then the length (2
// bytes) of .metadata, as many bytes of it, and __0_0.distcp.
bool run_folder(std::string_view input);

// A .safetensors file. First byte: 'f', then the file; or 'h', then its header up to the first zero byte, then the
// numbers.
bool run_safetensors(std::string_view input);

struct Target {
  const char* name;
  bool (*run)(std::string_view input);
};

inline constexpr std::array<Target, 4> kTargets = {
    {{"metadata", run_metadata}, {"distcp", run_distcp}, {"folder", run_folder}, {"safetensors", run_safetensors}}};

// Sound inputs of a target, made by the program's own writers: (name, bytes). Throws std::invalid_argument for a target
// that does not exist.
std::vector<std::pair<std::string, std::string>> seeds(std::string_view target);

}  // namespace titan::fuzz

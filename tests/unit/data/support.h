// Helpers for the tests of data/: temporary corpora and a tokenizer simple enough to predict.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "contract/batch_source.h"
#include "data/tokenizer/tokenizer.h"

namespace titan::data {

class TempFolder {
 public:
  TempFolder() {
    static std::atomic<int> count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("titan_data_test_" + std::to_string(::getpid()) + "_" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  std::filesystem::path write(const std::string& name, std::string_view content) const {
    const auto file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << content;
    return file;
  }

 private:
  std::filesystem::path path_;
};

// One token per byte, 0 to 255; BOS 256 and EOS 257 unless turned off.
class ByteTokenizer final : public Tokenizer {
 public:
  explicit ByteTokenizer(bool with_bos = true, bool with_eos = true) : with_bos_(with_bos), with_eos_(with_eos) {}

  void encode(std::string_view text, std::vector<std::int32_t>& ids) const override {
    for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
  }
  std::string decode(std::span<const std::int32_t> ids) const override { return {ids.begin(), ids.end()}; }
  std::optional<std::int32_t> bos_id() const override { return with_bos_ ? std::optional(256) : std::nullopt; }
  std::optional<std::int32_t> eos_id() const override { return with_eos_ ? std::optional(257) : std::nullopt; }
  std::int64_t vocab_size() const override { return 258; }

 private:
  bool with_bos_;
  bool with_eos_;
};

// Returns the values that a load finds for a saved position.
inline Values saved_values(const std::vector<StateEntry>& state) {
  Values values;
  for (const StateEntry& entry : state) values[entry.key] = entry.value;
  return values;
}

// Returns the message of the DataError that `action` throws; anything else fails the test.
template <typename Action>
std::string data_error(Action action) {
  try {
    action();
  } catch (const DataError& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "expected a DataError, got: " << error.what();
    return "";
  }
  ADD_FAILURE() << "expected a DataError, nothing was thrown";
  return "";
}

}  // namespace titan::data

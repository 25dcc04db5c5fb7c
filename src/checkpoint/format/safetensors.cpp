#include "checkpoint/format/safetensors.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/json_error.h"
#include "base/limits/parse_json.h"
#include "checkpoint/io/file.h"

namespace titan::checkpoint {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;  // only for writing: each insertion searches all keys

constexpr std::uint64_t kLengthSize = 8;
constexpr std::uint64_t kLongestHeader = 100'000'000;  // the limit of Hugging Face's own reader
constexpr std::size_t kDeepestHeader = 4;              // an object of objects of arrays: 3

constexpr std::array<std::pair<const char*, c10::ScalarType>, 9> kDtypes = {{{"F64", c10::ScalarType::Double},
                                                                             {"F32", c10::ScalarType::Float},
                                                                             {"F16", c10::ScalarType::Half},
                                                                             {"BF16", c10::ScalarType::BFloat16},
                                                                             {"I64", c10::ScalarType::Long},
                                                                             {"I32", c10::ScalarType::Int},
                                                                             {"I16", c10::ScalarType::Short},
                                                                             {"I8", c10::ScalarType::Char},
                                                                             {"U8", c10::ScalarType::Byte}}};

[[noreturn]] void fail(const fs::path& path, const std::string& why) {
  throw CheckpointError(path.string() + " is not a valid safetensors file: " + why);
}

const char* name_of(c10::ScalarType dtype) {
  for (const auto& [name, type] : kDtypes) {
    if (type == dtype) return name;
  }
  throw CheckpointError(std::string("safetensors files hold no ") + c10::toString(dtype));
}

// Returns an entry and the end of its data in the file.
std::pair<SafetensorsEntry, std::uint64_t> parse_entry(const fs::path& path, const std::string& name, const Json& json,
                                                       std::uint64_t data_begin, std::uint64_t data_size) {
  SafetensorsEntry entry;
  entry.name = name;
  const auto dtype = json.at("dtype").get<std::string>();
  const auto known = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const auto& d) { return dtype == d.first; });
  if (known == kDtypes.end()) fail(path, name + " has the dtype " + dtype + ", which is not supported");
  entry.dtype = known->second;
  if (!json.at("shape").is_array()) fail(path, name + " has an invalid shape");
  for (const auto& size : json.at("shape")) {
    if (!size.is_number_unsigned()) fail(path, name + " has an invalid shape");
    entry.shape.push_back(size.get<std::int64_t>());
    if (entry.shape.back() < 0) fail(path, name + " has an invalid shape");
  }
  const auto& offsets = json.at("data_offsets");
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned())
    fail(path, name + " has invalid data_offsets");
  const auto begin = offsets[0].get<std::uint64_t>(), end = offsets[1].get<std::uint64_t>();
  if (begin > end || end > data_size) fail(path, name + " lies outside the file");
  if (end - begin != bytes_of(entry, path)) fail(path, name + " has another size than its shape and dtype say");
  entry.begin = data_begin + begin;
  return {entry, data_begin + end};
}

}  // namespace

std::vector<fs::path> safetensors_files(const fs::path& path) {
  if (fs::is_regular_file(path)) return {path};
  std::vector<fs::path> paths;
  std::string pickles;
  if (fs::is_directory(path)) {
    for (const auto& entry : fs::directory_iterator(path)) {
      if (entry.path().extension() == ".safetensors") paths.push_back(entry.path());
      if (entry.path().extension() == ".bin" || entry.path().extension() == ".pt")
        pickles = "; its *" + entry.path().extension().string() +
                  " files are Python pickles, which can run any code when they are read, and are not read here: save "
                  "the model as safetensors";
    }
  }
  if (paths.empty()) throw CheckpointError(path.string() + " has no *.safetensors file" + pickles);
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::uint64_t bytes_of(const SafetensorsEntry& entry, const fs::path& path) {
  std::uint64_t bytes = c10::elementSize(entry.dtype);
  for (const std::int64_t size : entry.shape) {
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes))
      fail(path, entry.name + " has more elements than can be counted");
  }
  return bytes;
}

std::vector<SafetensorsEntry> read_safetensors_header(const fs::path& path) {
  const InputFile file(path);
  if (file.size() < kLengthSize) fail(path, "it has " + std::to_string(file.size()) + " bytes");
  std::uint64_t length = 0;
  file.read(0, &length, kLengthSize);
  constexpr std::string_view kPointer = "version https://git-lfs";
  if (std::memcmp(&length, kPointer.data(), kLengthSize) == 0)
    fail(path, "it is a pointer of Git LFS and holds no weights: fetch them with git lfs pull");
  if (length > kLongestHeader || length > file.size() - kLengthSize)
    fail(path, "its header would have " + std::to_string(length) + " bytes");
  std::string text(length, '\0');
  file.read(kLengthSize, text.data(), length);
  const std::uint64_t data_begin = kLengthSize + length;
  std::vector<std::pair<SafetensorsEntry, std::uint64_t>> parsed;
  try {
    if (is_too_deep(text, kDeepestHeader)) fail(path, "its header is nested too deeply");
    const Json header = parse_json<Json>(text);
    if (!header.is_object()) fail(path, "its header is not a JSON object");
    for (const auto& [name, json] : header.items()) {
      if (name != "__metadata__") parsed.push_back(parse_entry(path, name, json, data_begin, file.size() - data_begin));
    }
  } catch (const nlohmann::json::exception& error) {
    fail(path, "its header cannot be read: " + json_error_text(error.what()));
  }
  std::sort(parsed.begin(), parsed.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first.begin, a.second) < std::tie(b.first.begin, b.second);
  });
  std::uint64_t at = data_begin;
  std::vector<SafetensorsEntry> entries;
  for (auto& [entry, end] : parsed) {
    if (entry.begin != at) fail(path, entry.name + " overlaps the tensor before it, or there is a gap");
    at = end;
    entries.push_back(std::move(entry));
  }
  if (at != file.size()) fail(path, "there are bytes after the last tensor, or it was cut");
  return entries;
}

std::string make_safetensors_header(std::vector<SafetensorsEntry>& entries) {
  OrderedJson header;
  header["__metadata__"] = {{"format", "pt"}};  // transformers requires it
  std::uint64_t at = 0;
  for (auto& entry : entries) {
    const std::uint64_t end = at + bytes_of(entry);
    header[entry.name] = {{"dtype", name_of(entry.dtype)}, {"shape", entry.shape}, {"data_offsets", {at, end}}};
    entry.begin = at;
    at = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // so that the data is aligned
  const std::uint64_t length = text.size();
  for (auto& entry : entries) entry.begin += kLengthSize + length;
  std::string head(kLengthSize, '\0');
  std::memcpy(head.data(), &length, kLengthSize);
  return head + text;
}

MappedSafetensors::MappedSafetensors(fs::path path) : path_(std::move(path)), entries_(read_safetensors_header(path_)) {
  const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw CheckpointError("cannot open " + path_.string() + ": " + std::strerror(errno));
  size_ = fs::file_size(path_);
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
  ::close(fd);
  if (data == MAP_FAILED) throw CheckpointError("cannot map " + path_.string() + ": " + std::strerror(errno));
  data_ = static_cast<const char*>(data);
}

MappedSafetensors::~MappedSafetensors() {
  if (data_) ::munmap(const_cast<char*>(data_), size_);
}

void MappedSafetensors::copy_rows(const SafetensorsEntry& entry, const std::vector<std::int64_t>& rows,
                                  std::int64_t first_col, at::Tensor target) const {
  const at::NoGradGuard no_grad;
  const auto item = static_cast<std::int64_t>(c10::elementSize(entry.dtype));
  const std::int64_t cols = entry.shape.size() == 2 ? entry.shape[1] : 1;
  const std::int64_t wanted = target.dim() == 2 ? target.size(1) : 1;
  // Data in files may be unaligned: copies bytes first, then casts.
  auto stored = at::empty(target.sizes(), at::TensorOptions().dtype(entry.dtype));
  auto* to = static_cast<char*>(stored.data_ptr());
  for (const std::int64_t row : rows) {
    std::memcpy(to, data_ + entry.begin + static_cast<std::uint64_t>((row * cols + first_col) * item),
                static_cast<std::size_t>(wanted * item));
    to += wanted * item;
  }
  target.copy_(stored);
}

}  // namespace titan::checkpoint

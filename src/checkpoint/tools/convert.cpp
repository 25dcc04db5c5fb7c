#include "checkpoint/tools/convert.h"

#include <ATen/ATen.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "base/error.h"
#include "base/log.h"
#include "base/run_layout.h"
#include "base/text.h"
#include "checkpoint/dcp/item.h"
#include "checkpoint/dcp/metadata.h"
#include "checkpoint/format/cast.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/io/checksums.h"

namespace titan::checkpoint {
namespace fs = std::filesystem;

const char* kind_name(CheckpointKind kind) {
  switch (kind) {
    case CheckpointKind::kDcp:
      return "dcp";
    case CheckpointKind::kHuggingFace:
      return "hf";
    case CheckpointKind::kTorch:
      return "torch";
  }
  return "";
}

CheckpointKind detect_kind(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) throw CheckpointError(path.string() + " does not exist");
  if (fs::is_directory(path)) {
    if (is_complete(path)) return CheckpointKind::kDcp;
    if (fs::exists(path / layout::kModelFile)) return CheckpointKind::kTorch;
    for (const auto& entry : fs::directory_iterator(path)) {
      if (entry.path().extension() == ".safetensors") return CheckpointKind::kHuggingFace;
    }
    throw CheckpointError(
        path.string() +
        " is not a checkpoint: it has neither .metadata, which a save writes last, nor *.safetensors, nor model.pt");
  }
  if (path.extension() == ".safetensors") return CheckpointKind::kHuggingFace;
  std::array<char, 4> head{};
  std::ifstream(path, std::ios::binary).read(head.data(), head.size());
  if (std::string_view(head.data(), 4) == "PK\x03\x04") return CheckpointKind::kTorch;
  throw CheckpointError(path.string() + " is neither a *.safetensors file nor one that torch.save wrote as a zip file");
}

fs::path torch_file(const fs::path& path) { return fs::is_directory(path) ? path / layout::kModelFile : path; }

void check_texts(const fs::path& path, CheckpointKind kind) {
  const fs::path folder = fs::is_directory(path) ? path : path.parent_path();
  const auto changed = changed_texts(folder.empty() ? "." : folder);
  if (changed.empty()) return;
  if (kind != CheckpointKind::kHuggingFace)
    throw CheckpointError(folder.string() + " is damaged: " + join(changed, "; ") +
                          ". If the change is meant, remove " + (folder / kChecksumsFile).string());
  if (speaks_for_all()) spdlog::warn("{}: {}", folder.string(), join(changed, "; "));
}

std::unique_ptr<TensorSource> open_source(const fs::path& path, CheckpointKind kind) {
  switch (kind) {
    case CheckpointKind::kDcp:
      return open_dcp_source(path);
    case CheckpointKind::kHuggingFace:
      return open_safetensors_source(path);
    case CheckpointKind::kTorch:
      return open_torch_source(torch_file(path));
  }
  return nullptr;
}

at::Tensor reorder_rows(const at::Tensor& rows, std::int64_t head_size, RowOrder order) {
  const std::int64_t heads = rows.size(0) / head_size;
  const bool to_them = order == RowOrder::kToHuggingFace;
  const std::int64_t outer = to_them ? head_size / 2 : 2;
  return rows.reshape({heads, outer, head_size / outer, -1}).transpose(1, 2).reshape(rows.sizes());
}

namespace {

// Returns the shape that `each` makes from tensors of the shape `from`.
std::vector<std::int64_t> target_shape(const Conversion& each, std::vector<std::int64_t> from) {
  if (each.index) from.erase(from.begin());
  if (each.stacked_with) from.insert(from.begin(), static_cast<std::int64_t>(each.stacked_with->size()) + 1);
  return from;
}

std::vector<std::size_t> sources_of(const Conversion& each) {
  std::vector<std::size_t> sources = {each.source};
  if (each.stacked_with) sources.insert(sources.end(), each.stacked_with->begin(), each.stacked_with->end());
  return sources;
}

void check_overflow(TensorSource& source, const std::string& name, const at::Tensor& rows, c10::ScalarType dtype) {
  const std::string lost = overflow_text(rows, dtype);
  if (lost.empty()) return;
  source.verify();  // throws if damage is the cause
  throw CheckpointError(name + " holds " + lost + ": they would become infinite. Use --export-dtype bfloat16 or " +
                        "float32, or write infinities with --allow-overflow");
}

// Copies the rows of one tensor in blocks of about `block_bytes`.
class Copier {
 public:
  Copier(TensorSource& source, TensorSink& sink, std::uint64_t block_bytes, bool may_overflow)
      : source_(source), sink_(sink), block_bytes_(block_bytes), may_overflow_(may_overflow) {}

  void copy(const Conversion& each, std::size_t tensor) {
    const TensorInfo& from = source_.tensors().at(tensor);
    const std::int64_t begin = each.index.value_or(0), end = each.index ? *each.index + 1 : from.rows();
    const std::int64_t head_size = each.order == RowOrder::kSame ? 1 : from.rows() / each.heads;
    const std::int64_t block =
        source_.reads_by_rows(tensor) ? block_rows(from, each.target.dtype, head_size) : from.rows();
    for (std::int64_t row = begin; row < end; row += block) {
      at::Tensor rows = source_.read(tensor, row, std::min(row + block, end));
      if (each.order != RowOrder::kSame && rows.numel() > 0) rows = reorder_rows(rows, head_size, each.order);
      if (!may_overflow_) check_overflow(source_, from.name, rows, each.target.dtype);
      sink_.append(cast(rows, each.target.dtype));
    }
  }

 private:
  std::int64_t block_rows(const TensorInfo& from, c10::ScalarType target, std::int64_t head_size) const {
    const std::size_t element = std::max(c10::elementSize(from.dtype), c10::elementSize(target));
    const std::int64_t head_bytes =
        std::max<std::int64_t>(head_size * from.elements_per_row() * static_cast<std::int64_t>(element), 1);
    return std::max<std::int64_t>(static_cast<std::int64_t>(block_bytes_) / head_bytes, 1) * head_size;
  }

  TensorSource& source_;
  TensorSink& sink_;
  std::uint64_t block_bytes_;
  bool may_overflow_;
};

}  // namespace

void check_conversions(const TensorSource& source, const std::vector<Conversion>& conversions) {
  for (const Conversion& each : conversions) {
    const TensorInfo& first = source.tensors().at(each.source);
    for (const std::size_t tensor : sources_of(each)) {
      const TensorInfo& from = source.tensors().at(tensor);
      if (from.shape != first.shape)
        throw CheckpointError(from.name + " of shape " + dist::shape_text(from.shape) + " and " + first.name + " of " +
                              dist::shape_text(first.shape) + " are parts of one tensor, and must have one shape");
    }
    TITAN_CHECK(target_shape(each, first.shape) == each.target.shape, first.name + " changes its shape");
    if (each.order == RowOrder::kSame) continue;
    TITAN_CHECK(!each.index && !each.stacked_with, first.name + ": stacked tensors keep the order of their rows");
    if (each.heads < 1 || first.shape.empty() || first.shape[0] % (2 * each.heads) != 0)
      throw CheckpointError(first.name + " of shape " + dist::shape_text(first.shape) + " cannot be divided into " +
                            std::to_string(each.heads) + " heads of an even size: it is of another model");
  }
}

void check_equal(TensorSource& source, std::size_t first, std::size_t second, std::uint64_t block_bytes) {
  const TensorInfo &one = source.tensors().at(first), &other = source.tensors().at(second);
  if (one.shape != other.shape) throw unequal_ties(one.name, other.name);
  const std::uint64_t row_bytes =
      std::max<std::uint64_t>(static_cast<std::uint64_t>(one.elements_per_row()) * c10::elementSize(one.dtype), 1);
  const auto block = static_cast<std::int64_t>(std::max<std::uint64_t>(block_bytes / row_bytes, 1));
  for (std::int64_t row = 0; row < one.rows(); row += block) {
    const std::int64_t end = std::min(row + block, one.rows());
    // Numbers are compared, as the conversion may change their dtype; NaN is in neither of two tables that were tied.
    if (!source.read(first, row, end).equal(source.read(second, row, end).to(one.dtype)))
      throw unequal_ties(one.name, other.name);
  }
}

std::uint64_t convert(TensorSource& source, TensorSink& sink, const std::vector<Conversion>& conversions,
                      std::uint64_t block_bytes, bool may_overflow) {
  const at::NoGradGuard no_grad;
  check_conversions(source, conversions);
  Copier copier(source, sink, block_bytes, may_overflow);
  for (const Conversion& each : conversions) {
    sink.begin(each.target);
    for (const std::size_t tensor : sources_of(each)) copier.copy(each, tensor);
    sink.end();
  }
  source.verify();
  return sink.finish();
}

}  // namespace titan::checkpoint

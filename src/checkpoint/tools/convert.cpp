#include "checkpoint/tools/convert.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "base/error.h"
#include "checkpoint/dcp/metadata.h"
#include "checkpoint/format/cast.h"
#include "checkpoint/format/safetensors.h"

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
    for (const auto& entry : fs::directory_iterator(path)) {
      if (entry.path().extension() == ".safetensors") return CheckpointKind::kHuggingFace;
    }
    throw CheckpointError(path.string() +
                          " is no checkpoint: it has neither .metadata, which a save writes last, nor *.safetensors");
  }
  if (path.extension() == ".safetensors") return CheckpointKind::kHuggingFace;
  std::array<char, 4> head{};
  std::ifstream(path, std::ios::binary).read(head.data(), head.size());
  if (std::string_view(head.data(), 4) == "PK\x03\x04") return CheckpointKind::kTorch;
  throw CheckpointError(path.string() + " is neither a *.safetensors file nor one that torch.save wrote as a zip file");
}

std::unique_ptr<TensorSource> open_source(const fs::path& path, CheckpointKind kind) {
  switch (kind) {
    case CheckpointKind::kDcp:
      return open_dcp_source(path);
    case CheckpointKind::kHuggingFace:
      return open_safetensors_source(path);
    case CheckpointKind::kTorch:
      return open_torch_source(path);
  }
  return nullptr;
}

bool is_model_key(const std::string& fqn) {
  for (const char* prefix : {"optimizer.", "lr_scheduler.", "dataloader.", "train_state.", "grad_scaler.", "titan."})
    if (fqn.starts_with(prefix)) return false;
  return true;
}

at::Tensor reorder_rows(const at::Tensor& rows, std::int64_t head_size, RowOrder order) {
  const std::int64_t heads = rows.size(0) / head_size;
  const bool to_them = order == RowOrder::kToHuggingFace;
  const std::int64_t outer = to_them ? head_size / 2 : 2;
  return rows.reshape({heads, outer, head_size / outer, -1}).transpose(1, 2).reshape(rows.sizes());
}

void check_conversions(const TensorSource& source, const std::vector<Conversion>& conversions) {
  for (const Conversion& each : conversions) {
    const TensorInfo& from = source.tensors().at(each.source);
    TITAN_CHECK(from.shape == each.target.shape, from.name + " changes its shape");
    if (each.order == RowOrder::kSame) continue;
    if (each.heads < 1 || from.shape.empty() || from.shape[0] % (2 * each.heads) != 0)
      throw CheckpointError(from.name + " of shape " + dist::shape_text(from.shape) + " cannot be divided into " +
                            std::to_string(each.heads) + " heads of an even size: it is of another model");
  }
}

std::uint64_t convert(TensorSource& source, TensorSink& sink, const std::vector<Conversion>& conversions,
                      std::uint64_t block_bytes, bool may_overflow) {
  const at::NoGradGuard no_grad;
  check_conversions(source, conversions);
  for (const Conversion& each : conversions) {
    const TensorInfo& from = source.tensors().at(each.source);
    const std::size_t element = std::max(c10::elementSize(from.dtype), c10::elementSize(each.target.dtype));
    const std::int64_t head_size = each.order == RowOrder::kSame ? 1 : from.rows() / each.heads;
    const std::int64_t head_bytes =
        std::max<std::int64_t>(head_size * from.elements_per_row() * static_cast<std::int64_t>(element), 1);
    const std::int64_t block =
        std::max<std::int64_t>(static_cast<std::int64_t>(block_bytes) / head_bytes, 1) * head_size;
    sink.begin(each.target);
    for (std::int64_t row = 0; row < from.rows(); row += block) {
      at::Tensor rows = source.read(each.source, row, std::min(row + block, from.rows()));
      if (each.order != RowOrder::kSame && rows.numel() > 0) rows = reorder_rows(rows, head_size, each.order);
      const std::string lost = may_overflow ? "" : overflow_text(rows, each.target.dtype);
      if (!lost.empty()) source.verify();  // damage may look like this
      if (!lost.empty())
        throw CheckpointError(from.name + " holds " + lost +
                              ": they would become infinite. Use --export-dtype bfloat16 or " +
                              "float32, or write infinities with --allow-overflow");
      sink.append(cast(rows, each.target.dtype));
    }
    sink.end();
  }
  source.verify();
  return sink.finish();
}

}  // namespace titan::checkpoint

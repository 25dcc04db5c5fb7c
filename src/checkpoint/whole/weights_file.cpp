#include "checkpoint/whole/weights_file.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/error.h"
#include "checkpoint/io/file.h"

namespace titan::checkpoint {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kZip = "PK\x03\x04";
constexpr char kPickle = '\x80';  // a pickle's first opcode, PROTO

std::string first_bytes(const fs::path& path) {
  const InputFile file(path);
  std::string bytes(std::min<std::uint64_t>(file.size(), kZip.size()), '\0');
  file.read(0, bytes.data(), bytes.size());
  return bytes;
}

std::string for_python(const fs::path& path) { return "\"" + path.string() + "\""; }

}  // namespace

void check_weights_file(const fs::path& file) {
  const std::string name = file.string(), ending = file.extension();
  const fs::path folder = file.parent_path().empty() ? "." : file.parent_path();
  if (!fs::exists(file)) throw CheckpointError(name + " does not exist");
  if (ending == ".bin")
    throw CheckpointError(
        name + " is a file of Hugging Face's pickles, which are not read here; python -c 'from transformers import " +
        "AutoModelForCausalLM as M; M.from_pretrained(" + for_python(folder) + ").save_pretrained(" +
        for_python(folder / "safetensors") +
        ")' makes safetensors of it, to load with checkpoint.initial_load_path = " +
        for_python(folder / "safetensors") + ", checkpoint.initial_load_in_hf = true");
  if (ending == ".safetensors") return;
  if (ending != ".pt" && ending != ".pth")
    throw CheckpointError(name + " is a file whose name ends in neither .pt, .pth nor .safetensors");
  const std::string first = first_bytes(file);
  if (first == kZip) return;
  if (first.starts_with(kPickle))
    throw CheckpointError(name + " is in torch.save's format before PyTorch 1.6, not a zip file; python -c 'import " +
                          "torch; torch.save(torch.load(" + for_python(file) + ", weights_only=True), " +
                          for_python(folder / (file.stem().string() + ".zip.pt")) + ")' makes one of it");
  throw CheckpointError(name + " is not a file of torch.save: it begins as neither a zip file nor a pickle");
}

std::unique_ptr<TensorSource> open_weights_file(const fs::path& file) {
  check_weights_file(file);
  auto source = file.extension() == ".safetensors" ? open_safetensors_source(file) : open_torch_source(file);
  source->use_own_names(file.string());
  return source;
}

bool has_hugging_face_names(const TensorSource& source) {
  return std::ranges::any_of(source.tensors(), [](const TensorInfo& tensor) {
    return tensor.name.starts_with("model.") || tensor.name == "lm_head.weight";
  });
}

}  // namespace titan::checkpoint

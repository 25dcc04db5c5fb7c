#include "apps/saved/convert_plan.h"

#include <spdlog/spdlog.h>

#include <map>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/format/dtype.h"
#include "facts/shard_spec.h"

namespace titan {
namespace {

using checkpoint::Conversion;
using checkpoint::RowOrder;
using checkpoint::TensorInfo;

c10::ScalarType target_dtype(const std::string& wanted, c10::ScalarType stored) {
  if (wanted == "same" || !c10::isFloatingType(stored)) return stored;
  return *checkpoint::dtype_from_name(wanted);
}

// Without what torch.compile, activation checkpointing, FSDP and DDP put into the names of the modules that they wrap.
std::string unwrapped(std::string name) {
  if (name.starts_with("module.")) name.erase(0, std::string_view("module.").size());
  for (const std::string_view wrapper : {"_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module."})
    for (auto at = name.find(wrapper); at != std::string::npos; at = name.find(wrapper)) name.erase(at, wrapper.size());
  return name;
}

// `fqn` if it is a parameter that the architecture knows: one that it calls by a name that leads back.
std::optional<std::string> own_name(const ModelShape& shape, const std::string& fqn) {
  try {
    if (shape.names.fqn_of(shape.names.name_of(fqn).name) == fqn) return fqn;
  } catch (const InternalError&) {
  }
  return std::nullopt;
}

// That the result is the model of the configuration: every parameter, each of its shape.
void check_model(const std::vector<Conversion>& plan, bool to_hub, const ModelShape& shape) {
  std::map<std::string, std::vector<std::int64_t>> found;
  for (const Conversion& each : plan) found[each.target.name] = each.target.shape;
  std::vector<std::string> wrong;
  const auto model = shape.spec->build_model(std::nullopt);
  for (const auto& parameter : model->named_parameters()) {
    const std::string name = to_hub ? shape.names.name_of(parameter.fqn).name : parameter.fqn;
    const auto wanted = parameter.tensor().sizes().vec();
    const auto stored = found.find(name);
    if (stored == found.end()) {
      wrong.push_back(name + " is missing");
    } else if (stored->second != wanted) {
      wrong.push_back(name + " is " + dist::shape_text(stored->second) + ", expected " + dist::shape_text(wanted));
    }
    if (stored != found.end()) found.erase(stored);
  }
  for (const auto& [name, other] : found) wrong.push_back(name + " is no parameter of it");
  if (!wrong.empty())
    throw CheckpointError("the source is not the model of " + shape.origin + ": " + join(wrong, "; "));
}

}  // namespace

std::vector<Conversion> plan_renamed(const std::vector<TensorInfo>& tensors, bool to_hub, const ModelShape& shape,
                                     const std::string& dtype) {
  std::vector<Conversion> plan;
  std::vector<std::string> unknown;
  const auto add = [&](std::size_t index, const std::string& fqn) {
    const TensorInfo& from = tensors[index];
    const HuggingFaceName hub = shape.names.name_of(fqn);
    const RowOrder order = hub.rotary_heads == 0 ? RowOrder::kSame
                           : to_hub              ? RowOrder::kToHuggingFace
                                                 : RowOrder::kFromHuggingFace;
    plan.push_back(
        {index, {to_hub ? hub.name : fqn, target_dtype(dtype, from.dtype), from.shape}, order, hub.rotary_heads});
  };
  std::optional<std::size_t> embedding;
  bool has_output = false;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::string name = unwrapped(tensors[i].name);
    if (to_hub && !checkpoint::is_model_key(name)) continue;
    // Old exports keep the frequencies of the rotary embedding, which follow from config.json.
    if (!to_hub && name.ends_with(".rotary_emb.inv_freq")) {
      spdlog::warn("{} is left out: it follows from the configuration", name);
      continue;
    }
    const auto fqn = to_hub ? own_name(shape, name) : shape.names.fqn_of(name);
    if (!fqn) {
      unknown.push_back(name);
      continue;
    }
    if (*fqn == shape.names.embedding) embedding = i;
    has_output = has_output || *fqn == shape.names.output;
    add(i, *fqn);
  }
  if (!unknown.empty())
    throw CheckpointError("the source holds tensors that are no parameters of the model: " + join(unknown, ", "));
  if (shape.tied_embeddings && !has_output && embedding) add(*embedding, shape.names.output);
  if (shape.spec) check_model(plan, to_hub, shape);
  return plan;
}

std::vector<Conversion> plan_same_names(const std::vector<TensorInfo>& tensors, const std::string& dtype) {
  std::vector<Conversion> plan;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& from = tensors[i];
    const std::string name = unwrapped(from.name);
    if (checkpoint::is_model_key(name))
      plan.push_back({i, {name, target_dtype(dtype, from.dtype), from.shape}, RowOrder::kSame, 0});
  }
  return plan;
}

void check_own_names(const std::vector<TensorInfo>& tensors, const std::string& source) {
  const auto names = models::hugging_face_names("LlamaForCausalLM", 1, 1);
  for (const TensorInfo& tensor : tensors)
    if (const auto fqn = names.fqn_of(unwrapped(tensor.name)); fqn && *fqn != tensor.name)
      throw CheckpointError(source + " has Hugging Face's names (" + tensor.name +
                            "): save the model with save_pretrained(FOLDER), whose config.json says what it is, and "
                            "convert that folder");
}

c10::ScalarType dtype_of(const std::vector<Conversion>& plan) {
  for (const Conversion& each : plan)
    if (c10::isFloatingType(each.target.dtype)) return each.target.dtype;
  return c10::ScalarType::Float;
}

}  // namespace titan

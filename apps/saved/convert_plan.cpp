#include "apps/saved/convert_plan.h"

#include <spdlog/spdlog.h>

#include <iterator>
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

// Returns `fqn` if it is a parameter of the model: mapping it to Hugging Face's name and back gives `fqn`.
std::optional<std::string> own_name(const ModelNaming& naming, const std::string& fqn) {
  try {
    if (const auto origin = naming.from_hub(naming.to_hub(fqn).front().name); origin && origin->fqn == fqn) return fqn;
  } catch (const InternalError&) {
  }
  return std::nullopt;
}

// Returns name -> shape of all tensors of the model in the target format.
std::map<std::string, std::vector<std::int64_t>> tensors_of(const ModelShape& shape, bool to_hub) {
  std::map<std::string, std::vector<std::int64_t>> tensors;
  const auto model = shape.spec->build_model(std::nullopt);
  for (const auto& parameter : model->named_parameters(/*remove_duplicate=*/to_hub)) {
    if (to_hub && !is_exported(shape.spec->naming, parameter.fqn)) continue;
    const auto sizes = parameter.tensor().sizes().vec();
    if (!to_hub) tensors[parameter.fqn] = sizes;
    if (to_hub)
      for (const HubTensor& hub : shape.spec->naming.to_hub(parameter.fqn))
        tensors[hub.name] = shape_in_hub(sizes, hub);
  }
  return tensors;
}

// Checks that the result has every parameter of the configuration's model with the right shape.
void check_model(const std::vector<Conversion>& plan, bool to_hub, const ModelShape& shape) {
  std::map<std::string, std::vector<std::int64_t>> found;
  for (const Conversion& each : plan) found[each.target.name] = each.target.shape;
  std::vector<std::string> wrong;
  for (const auto& [name, wanted] : tensors_of(shape, to_hub)) {
    const auto stored = found.find(name);
    if (stored == found.end()) {
      wrong.push_back(name + " is missing");
    } else if (stored->second != wanted) {
      wrong.push_back(name + " is " + dist::shape_text(stored->second) + ", expected " + dist::shape_text(wanted));
    }
    if (stored != found.end()) found.erase(stored);
  }
  for (const auto& [name, other] : found) wrong.push_back(name + " is not a parameter of it");
  if (!wrong.empty())
    throw CheckpointError("the source is not the model of " + shape.origin + ": " + join(wrong, "; "));
}

RowOrder order_of(const HubTensor& hub, bool to_hub) {
  if (hub.rotary_heads == 0) return RowOrder::kSame;
  return to_hub ? RowOrder::kToHuggingFace : RowOrder::kFromHuggingFace;
}

// Adds to `plan` the tensors `names` of one parameter, which is tensor `source` of `tensors`.
void add_to_hub(const std::vector<TensorInfo>& tensors, std::size_t source, const std::vector<HubTensor>& names,
                const std::string& dtype, std::vector<Conversion>& plan) {
  const TensorInfo& from = tensors[source];
  if (names.front().index && (from.shape.empty() || from.rows() != static_cast<std::int64_t>(names.size())))
    throw CheckpointError(from.name + " is " + dist::shape_text(from.shape) + ", expected " +
                          std::to_string(names.size()) + " tensors stacked along dim 0");
  for (const HubTensor& hub : names)
    plan.push_back({source,
                    {hub.name, target_dtype(dtype, from.dtype), shape_in_hub(from.shape, hub)},
                    order_of(hub, /*to_hub=*/true),
                    hub.rotary_heads,
                    hub.index});
}

// Adds to `plan` the parameter `fqn`, made of the tensors `sources` (index in its dim 0 -> index in `tensors`).
void add_from_hub(const std::vector<TensorInfo>& tensors, const std::map<std::int64_t, std::size_t>& sources,
                  const std::string& fqn, const HubTensor& hub, const std::string& dtype,
                  std::vector<Conversion>& plan) {
  const std::size_t first = sources.begin()->second;
  Conversion each{first,
                  {fqn, target_dtype(dtype, tensors[first].dtype), tensors[first].shape},
                  order_of(hub, /*to_hub=*/false),
                  hub.rotary_heads};
  if (hub.index) {
    each.stacked_with.emplace();
    for (auto next = std::next(sources.begin()); next != sources.end(); ++next)
      each.stacked_with->push_back(next->second);
    each.target.shape.insert(each.target.shape.begin(), static_cast<std::int64_t>(sources.size()));
  }
  plan.push_back(std::move(each));
}

// The parameters of the model among the source's tensors, in the source's order.
struct Found {
  std::vector<std::string> order;
  std::map<std::string, std::map<std::int64_t, std::size_t>> sources;  // by parameter and index in its dim 0
  std::vector<std::string> unknown;
};

Found find_parameters(const std::vector<TensorInfo>& tensors, bool to_hub, const ModelNaming& naming) {
  Found found;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::string name = checkpoint::without_wrappers(tensors[i].name);
    if (to_hub && !checkpoint::is_model_key(name)) continue;
    // Old exports hold the rotary embedding's frequencies, which follow from config.json.
    if (!to_hub && name.ends_with(".rotary_emb.inv_freq")) {
      spdlog::warn("{} is left out: it follows from the configuration", name);
      continue;
    }
    std::optional<HubOrigin> origin = to_hub ? std::nullopt : naming.from_hub(name);
    if (to_hub)
      if (const auto fqn = own_name(naming, name)) origin = HubOrigin{*fqn};
    if (!origin) {
      found.unknown.push_back(name);
      continue;
    }
    auto& sources = found.sources[origin->fqn];
    if (sources.empty()) found.order.push_back(origin->fqn);
    const auto [first, is_new] = sources.emplace(origin->index.value_or(0), i);
    if (!is_new)
      throw CheckpointError("the source holds " + origin->fqn + " twice, as " + tensors[first->second].name +
                            " and as " + tensors[i].name);
  }
  return found;
}

}  // namespace

std::vector<Conversion> plan_renamed(const std::vector<TensorInfo>& tensors, bool to_hub, const ModelShape& shape,
                                     const std::string& dtype) {
  const ModelNaming& naming = shape.spec->naming;
  Found found = find_parameters(tensors, to_hub, naming);
  if (!found.unknown.empty())
    throw CheckpointError("the source holds tensors that are not parameters of the model: " +
                          join(found.unknown, ", "));
  if (shape.tied_embeddings && found.sources.contains(naming.embedding) && !found.sources.contains(naming.output)) {
    found.sources[naming.output] = found.sources[naming.embedding];
    found.order.push_back(naming.output);
  }
  std::vector<Conversion> plan;
  for (const std::string& fqn : found.order) {
    if (to_hub && !is_exported(naming, fqn)) continue;
    const auto names = naming.to_hub(fqn);
    const auto& sources = found.sources[fqn];
    if (to_hub) add_to_hub(tensors, sources.begin()->second, names, dtype, plan);
    if (!to_hub) add_from_hub(tensors, sources, fqn, names.front(), dtype, plan);
  }
  check_model(plan, to_hub, shape);
  return plan;
}

void check_ties(checkpoint::TensorSource& source, bool to_hub, const ModelShape& shape) {
  const ModelNaming& naming = shape.spec->naming;
  if (!naming.is_tied) return;
  const Found found = find_parameters(source.tensors(), to_hub, naming);
  const auto first = found.sources.find(naming.embedding), second = found.sources.find(naming.output);
  if (first == found.sources.end() || second == found.sources.end()) return;
  checkpoint::check_equal(source, first->second.begin()->second, second->second.begin()->second);
}

std::vector<Conversion> plan_same_names(const std::vector<TensorInfo>& tensors, const std::string& dtype) {
  std::vector<Conversion> plan;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& from = tensors[i];
    const std::string name = checkpoint::without_wrappers(from.name);
    if (checkpoint::is_model_key(name))
      plan.push_back({i, {name, target_dtype(dtype, from.dtype), from.shape}, RowOrder::kSame, 0});
  }
  return plan;
}

void check_own_names(const std::vector<TensorInfo>& tensors, const std::string& source) {
  for (const TensorInfo& tensor : tensors)
    if (const auto fqn = models::parameter_of_hub_name(checkpoint::without_wrappers(tensor.name));
        fqn && *fqn != tensor.name)
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

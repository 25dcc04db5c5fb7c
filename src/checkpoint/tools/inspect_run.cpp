#include "checkpoint/tools/inspect_run.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "base/run_layout.h"
#include "checkpoint/dcp/step_folders.h"
#include "checkpoint/io/read_error.h"
#include "checkpoint/tools/inspect.h"

namespace titan::checkpoint {
namespace fs = std::filesystem;
namespace {

// Returns the N of "step-N", "step-N.tmp" and "step-N.replaced", or nullopt for other names.
std::optional<std::int64_t> step_in(const std::string& name) {
  for (const char* suffix : {"", ".tmp", ".replaced"}) {
    if (const auto step = layout::step_of(name, suffix)) return *step;
  }
  return std::nullopt;
}

// Fills in what `folder` holds. Throws ReadError.
void look_into(const fs::path& folder, StepInfo& info) {
  for (const std::string& name : listing_of(folder)) info.bytes += size_of(folder / name).value_or(0);
  if (info.name.ends_with(".tmp")) {
    info.detail = "a save under way, or what an interrupted one left";
  } else if (info.name.ends_with(".replaced")) {
    info.detail = "set aside while a new one moves in; the next load or save puts things right";
  } else if (!is_saved(folder)) {
    info.detail = "no .metadata: the save did not end";
  } else {
    try {
      const Inspection inside = inspect_checkpoint(folder);
      info.state = StepInfo::State::kComplete;
      info.holds = inside.kind == CheckpointKind::kHuggingFace ? "Hugging Face"
                   : inside.step                               ? "full"
                   : has_optimizer(inside)                     ? "model, optimizer"
                                                               : "model only";
      info.saved_at = inside.saved_at;
      info.ranks = inside.ranks;
    } catch (const ReadError&) {
      throw;
    } catch (const CheckpointError& error) {
      info.state = StepInfo::State::kDamaged;
      info.detail = error.what();
    }
  }
}

StepInfo inspect_step(const fs::path& folder, std::int64_t step) {
  StepInfo info;
  info.name = folder.filename();
  info.step = step;
  try {
    look_into(folder, info);
  } catch (const ReadError& error) {
    info.state = StepInfo::State::kUnreadable;
    info.detail = error.what();
  }
  return info;
}

}  // namespace

std::vector<StepInfo> inspect_run(const fs::path& folder) {
  std::vector<StepInfo> steps;
  for (const std::string& name : listing_of(folder)) {
    const auto step = step_in(name);
    if (step && type_of(folder / name) == fs::file_type::directory) steps.push_back(inspect_step(folder / name, *step));
  }
  std::sort(steps.begin(), steps.end(),
            [](const StepInfo& a, const StepInfo& b) { return std::tie(a.step, a.name) < std::tie(b.step, b.name); });
  return steps;
}

const StepInfo* newest_complete(const std::vector<StepInfo>& steps, const std::string& holds) {
  const StepInfo* newest = nullptr;
  for (const StepInfo& each : steps)
    if (each.state == StepInfo::State::kComplete && (holds.empty() || each.holds == holds)) newest = &each;
  return newest;
}

std::string loss_text(const std::vector<LoggedStep>& rows, std::int64_t step) {
  const LoggedStep* found = nullptr;
  for (const LoggedStep& row : rows)
    if (row.step <= step && (found == nullptr || row.step > found->step)) found = &row;
  if (found == nullptr) return "";
  const std::string loss = found->loss ? fmt::format("{:.5f}", *found->loss) : "not a number";
  return found->step == step ? loss : fmt::format("{} (step {})", loss, found->step);
}

}  // namespace titan::checkpoint

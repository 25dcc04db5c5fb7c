#include "apps/train/training_end.h"

#include <csignal>
#include <new>
#include <regex>
#include <string_view>

#include "base/error.h"
#include "base/process/common_error.h"
#include "base/process/phase.h"
#include "base/process/signal.h"
#include "base/text.h"

namespace titan {

train::Trainer::End train_to_the_end(std::unique_ptr<train::Trainer> trainer) {
  try {
    return trainer->train();
  } catch (const std::exception& error) {
    trainer.release();  // threads that still run use it
    const auto step = phase_log().step();
    const auto what = refused_allocation(error);
    if (!what || code_of_common_error(error.what())) throw;  // an error of all ranks names the one without memory
    throw Error("out of memory in step " + std::to_string(step) + ": there is no room for " + *what +
                    ". The same command with --dry-run says what takes how much; a smaller training.local_batch_size "
                    "(or validation.local_batch_size), activation_checkpoint.mode = \"full\" or more ranks take less",
                kExitFailed);
  }
}

// torch gives the amount in the middle of a long text; the standard library does not give it.
std::optional<std::string> refused_allocation(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error)) return "an array of the host";
  static const std::regex kTorch("[Tt]ried to allocate ([0-9.]+) ?([A-Za-z]+)");
  for (const char* refusal : {"CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED", "CUDA error: out of memory"})
    if (std::string_view(error.what()).find(refusal) != std::string_view::npos)
      return "the workspace of a library (" + std::string(refusal) + ")";
  std::cmatch match;
  if (!std::regex_search(error.what(), match, kTorch)) return std::nullopt;
  const bool in_bytes = match[2] == "bytes";
  return "a tensor of " + (in_bytes ? format_bytes(std::stod(match[1])) : match[1].str() + " " + match[2].str());
}

int exit_code_of_end(train::Trainer::End end) {
  if (end == train::Trainer::End::kCompleted) return kExitDone;
  if (end == train::Trainer::End::kStopped) return kExitSavedRequeue;
  if (end == train::Trainer::End::kDiverged) return kExitDiverged;
  if (end == train::Trainer::End::kDrifted) return kExitPeerFailed;
  return 128 + stop_requested().value_or(SIGTERM);  // this rank may not have received the signal
}

}  // namespace titan

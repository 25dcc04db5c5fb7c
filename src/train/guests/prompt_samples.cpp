#include "train/guests/prompt_samples.h"

#include <ATen/ATen.h>
#include <spdlog/spdlog.h>

#include <utility>

#include "generate/continuation.h"
#include "generate/text_stream.h"
#include "parallel/fsdp/fully_shard.h"
#include "train/guests/evaluation.h"

namespace titan::train {
namespace {

// Escapes newlines and blanks out control characters, so that a log line stays one line.
std::string in_one_line(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else {
      out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
    }
  }
  return out;
}

}  // namespace

PromptSamples::PromptSamples(Prompts prompts, std::int64_t max_tokens, std::int64_t context, LanguageModel& model,
                             const dist::DeviceMesh& mesh)
    : prompts_(std::move(prompts)), max_tokens_(max_tokens), context_(context), model_(model), mesh_(mesh) {}

// Returns rank 0's choice on all ranks, since processors that round differently must not diverge.
std::int64_t PromptSamples::likeliest(const at::Tensor& logits) const {
  auto id = logits.argmax(0).reshape({1}).to(at::kCPU);
  mesh_.group().broadcast(id, 0).wait();
  return id.item<std::int64_t>();
}

void PromptSamples::log(std::int64_t step) {
  if (std::exchange(last_step_, step) == step) return;
  const Evaluation evaluation(model_);
  for (const Prompt& prompt : prompts_.prompts) {
    generate::TextStream stream(prompts_.decode, prompt.ids);
    std::string text;
    generate::continue_tokens(
        model_, prompt.ids, {max_tokens_, context_, prompts_.stop_ids},
        [&](const at::Tensor& logits) { return likeliest(logits); },
        [&](std::int32_t id) {
          text += stream.add(id);
          return true;
        });
    text += stream.finish();
    spdlog::info("sample after step {}: \"{}\" -> \"{}\"", step, in_one_line(prompt.text), in_one_line(text));
  }
  fsdp::reshard(model_, /*recurse=*/true);
}

}  // namespace titan::train

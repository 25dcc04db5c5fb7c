#include "apps/commands/generation/conversation.h"

namespace titan {
namespace {

using Json = nlohmann::ordered_json;

data::ChatFormat read_format(const TrainedModel& model) {
  try {
    return data::read_chat_format(model.tokenizer_path, *model.tokenizer, model.chat_template);
  } catch (const DataError& error) {
    if (!model.chat_template) throw;
    throw DataError(std::string("titan-train generate: error: the chat template of the run: ") + error.what() +
                    "; put it there again, or name another configuration with --config FILE");
  }
}

Json message(const char* role, const std::string& content) { return {{"role", role}, {"content", content}}; }

}  // namespace

Conversation::Conversation(const TrainedModel& model, const std::optional<std::string>& system)
    : format_(read_format(model)) {
  if (system) messages_.push_back(message("system", *system));
  first_ = messages_.size();
}

std::string Conversation::render(const Json& messages, bool asks) const {
  data::ChatOptions options;
  options.add_generation_prompt = asks;
  options.variables = format_.special_tokens;
  return format_.chat_template.render(messages, options).text;
}

std::string Conversation::ask(const std::string& text) {
  messages_.push_back(message("user", text));
  try {
    return render(messages_, /*asks=*/true);
  } catch (...) {
    withdraw();
    throw;
  }
}

std::string Conversation::continued(const std::string& messages) const {
  Json all = Json::array();
  for (std::size_t i = 0; i < first_; ++i) all.push_back(messages_[i]);
  for (const Json& each : Json::parse(messages)) all.push_back(each);
  return render(all, /*asks=*/true);
}

void Conversation::answered(const std::string& answer) { messages_.push_back(message("assistant", answer)); }

void Conversation::withdraw() { messages_.erase(messages_.size() - 1); }

void Conversation::restart() {
  messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(first_), messages_.end());
}

}  // namespace titan

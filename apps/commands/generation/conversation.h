// A conversation with a model, in the words of the chat template beside its tokenizer.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "apps/saved/trained_model.h"
#include "data/conversations/chat_format.h"

namespace titan {

class Conversation {
 public:
  // `system`: the first message, if there is one. Throws DataError if there is no template, or one that cannot be
  // rendered here.
  Conversation(const TrainedModel& model, const std::optional<std::string>& system);

  // Returns the text that a model continues with its answer to `message`, after all that was said before. It has the
  // special tokens of the template, BOS included. Throws DataError if the template refuses the conversation.
  std::string ask(const std::string& message);
  // Returns the text that a model continues with its answer to the conversation `messages`, after the system's message
  // if there is one. `messages` is a JSON array of objects with "role" and "content". Changes nothing. Throws DataError
  // if the template refuses it.
  std::string continued(const std::string& messages) const;
  // Ends the turn that ask() began: adds the answer, or forgets the message.
  void answered(const std::string& answer);
  void withdraw();
  // Forgets everything but the system's message.
  void restart();

  const data::ChatFormat& format() const { return format_; }

 private:
  std::string render(const nlohmann::ordered_json& messages, bool asks) const;

  data::ChatFormat format_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
  std::size_t first_ = 0;  // messages that restart() keeps
};

}  // namespace titan

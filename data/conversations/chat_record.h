// A conversation to train on, as a line of a dataset holds it.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

namespace titan::data {

struct Conversation {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();    // of {"role", "content", ...}
  nlohmann::ordered_json tools = nullptr;                               // array of JSON schemas; null if there are none
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();  // further ones of the template
  std::vector<bool> is_trained;                                         // by message: the model learns to write it
};

// Reads a record in one of three forms, the first that its keys name:
//   "messages": [{"role": "user", "content": "..."}, ...]
//   "conversations": the same, or [{"from": "human", "value": "..."}, ...]
//   "prompt" and "completion": two texts, of the user and of the assistant, or two lists of messages
// with "tools" (a list, or its JSON as text), "system" (a text, put in front) and "chat_template_kwargs". The messages
// of the assistant are trained, without those of "weight": 0; of the third form, only those of the completion. Throws
// DataError for anything else, and if nothing is trained.
Conversation parse_conversation(const nlohmann::ordered_json& record);

}  // namespace titan::data

// Finds in the text of a conversation what the assistant has written.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/chat/chat_template.h"
#include "data/conversations/chat_record.h"

namespace titan::data {

struct TrainedText {
  std::string text;
  std::vector<ChatTemplate::Range> answers;  // bytes of `text` that the model learns to write, in order
};

// Renders a conversation and finds the messages that are trained, each with the mark that the template puts behind it.
// `special_tokens`: variables of the template, see ChatFiles. Uses the template's {% generation %} marks if it has any.
// Otherwise an answer lies between the prompt for it and the end of the text up to it, where these begin the full text;
// else it lies where renderings with other answers differ from each other. Throws DataError if the template refuses
// the conversation, or an answer is not found.
TrainedText find_answers(const ChatTemplate& chat_template, const nlohmann::ordered_json& special_tokens,
                         const Conversation& conversation);

}  // namespace titan::data

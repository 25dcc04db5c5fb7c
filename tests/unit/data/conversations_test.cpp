// Tests datasets of kind "chat": records, what is trained in them, and the rows that they are packed into.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <random>

#include "data/conversations/answers.h"
#include "data/conversations/chat_packs.h"
#include "data/conversations/packing.h"
#include "data/open.h"
#include "data/sources/token_marks.h"
#include "tests/unit/data/support.h"

namespace titan::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using OrderedJson = nlohmann::ordered_json;

// ------------------------------------------------------------------------------------------------ records

Conversation conversation(const std::string& json) { return parse_conversation(OrderedJson::parse(json)); }

std::string dialog(const std::string& json) {
  const Conversation found = conversation(json);
  std::string text;
  for (std::size_t i = 0; i < found.messages.size(); ++i)
    text += found.messages[i]["role"].get<std::string>() + ":" + found.messages[i]["content"].get<std::string>() +
            (found.is_trained[i] ? "! " : " ");
  return text;
}

TEST(Conversation, HasOneOfThreeForms) {
  EXPECT_EQ(dialog(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})"),
            "user:a assistant:b! ");
  EXPECT_EQ(dialog(R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]})"),
            "user:a assistant:b! ");
  EXPECT_EQ(dialog(R"({"conversations": [{"role": "user", "content": "a"}, {"from": "gpt", "value": "b"}]})"),
            "user:a assistant:b! ");
  EXPECT_EQ(dialog(R"({"prompt": "a", "completion": "b"})"), "user:a assistant:b! ");
  EXPECT_EQ(dialog(R"({"system": "s", "prompt": "a", "completion": "b"})"), "system:s user:a assistant:b! ");
  // The assistant's messages in a prompt are not trained.
  EXPECT_EQ(dialog(R"({"prompt": [{"role": "assistant", "content": "a"}],
                       "completion": [{"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}]})"),
            "assistant:a user:b assistant:c! ");
  EXPECT_EQ(dialog(R"({"messages": [{"role": "assistant", "content": "a", "weight": 0},
                                    {"role": "assistant", "content": "b", "weight": 1}], "prompt": "not used"})"),
            "assistant:a assistant:b! ");
}

TEST(Conversation, ToolsMayBeText) {
  const char* record = R"({"prompt": "a", "completion": "b", "tools": "[{\"name\": \"f\"}]",
                           "chat_template_kwargs": {"enable_thinking": false}})";
  const Conversation found = conversation(record);
  EXPECT_EQ(found.tools, OrderedJson::parse(R"([{"name": "f"}])"));
  EXPECT_EQ(found.variables, OrderedJson::parse(R"({"enable_thinking": false})"));
}

TEST(Conversation, OthersAreRefused) {
  const std::vector<std::pair<const char*, const char*>> wrong = {
      {R"({"text": "a"})", "the keys are \"text\""},
      {R"({"prompt": "a"})", "\"prompt\" and \"completion\"; the keys are \"prompt\""},
      {R"({"messages": "a"})", "\"messages\" is not a list of messages: found string"},
      {R"({"messages": ["a"]})", "message 1 of \"messages\" is not an object: found string"},
      {R"({"messages": [{"content": "a"}]})", "has no \"role\" that is text; its keys are \"content\""},
      {R"({"messages": [{"role": "user"}]})", "has no \"content\" that is text; found null"},
      {R"({"messages": [{"role": "user", "content": "a"}]})", "no message is the assistant's"},
      {R"({"messages": []})", "no message is the assistant's"},
      {R"({"messages": [{"role": "assistant", "content": "a", "weight": 0}]})", "no message is the assistant's"},
      {R"({"messages": [{"role": "assistant", "content": "a", "weight": 0.5}]})",
       "\"weight\" must be 0 or 1, found 0.5"},
      {R"({"conversations": [{"from": "martian", "value": "a"}]})", "\"from\": \"martian\" is not a known speaker"},
      {R"({"prompt": 3, "completion": "b"})", "\"prompt\" is neither text nor a list of messages: found number"},
      {R"({"prompt": "a", "completion": "b", "tools": 3})", "\"tools\" is not a list: found number"},
      {R"({"prompt": "a", "completion": "b", "tools": "{"})", "\"tools\" is text that is not JSON"},
      {R"({"prompt": "a", "completion": "b", "system": 3})", "\"system\" is not text: found number"},
      {R"({"prompt": "a", "completion": "b", "chat_template_kwargs": []})",
       "\"chat_template_kwargs\" is not an object"},
      {R"({"system": "a", "messages": [{"role": "system", "content": "b"}, {"role": "assistant", "content": "c"}]})",
       "keep one of them"}};
  for (const auto& [record, reason] : wrong)
    EXPECT_THAT(data_error([&] { conversation(record); }), HasSubstr(reason)) << record;
}

// ------------------------------------------------------------------------------------------------ answers

constexpr const char* kPlain =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}{% if add_generation_prompt %}<assistant>{% "
    "endif %}";

// Returns the text with the trained parts in brackets.
std::string bracketed(const char* chat_template, const std::string& record) {
  const TrainedText found =
      find_answers(ChatTemplate::parse(chat_template, "t.jinja"), OrderedJson::object(), conversation(record));
  std::string text = found.text;
  for (auto range = found.answers.rbegin(); range != found.answers.rend(); ++range) {
    text.insert(range->end, "]");
    text.insert(range->begin, "[");
  }
  return text;
}

const std::string kTwoTurns = R"({"messages": [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"},
                                               {"role": "user", "content": "3"}, {"role": "assistant", "content": "4"}]})";

TEST(Answers, LieBetweenThePromptAndTheEnd) {
  EXPECT_EQ(bracketed(kPlain, kTwoTurns), "<user>1</><assistant>[2</>]<user>3</><assistant>[4</>]");
  EXPECT_EQ(bracketed(kPlain, R"({"prompt": "", "completion": ""})"), "<user></><assistant>[</>]");
}

TEST(Answers, AreTheGenerationMarks) {
  constexpr const char* kMarked =
      "{% for m in messages %}{% if m.role == 'assistant' %}<a>{% generation %}{{ m.content }}</>{% endgeneration %}"
      "{% else %}<u>{{ m.content }}</>{% endif %}{% endfor %}";
  EXPECT_EQ(bracketed(kMarked, kTwoTurns), "<u>1</><a>[2</>]<u>3</><a>[4</>]");
  const std::string weighted = R"({"messages": [{"role": "user", "content": "1"},
      {"role": "assistant", "content": "2", "weight": 0}, {"role": "user", "content": "3"},
      {"role": "assistant", "content": "4"}]})";
  EXPECT_EQ(bracketed(kMarked, weighted), "<u>1</><a>2</><u>3</><a>[4</>]");
  EXPECT_EQ(bracketed(kPlain, weighted), "<user>1</><assistant>2</><user>3</><assistant>[4</>]");
}

// Like those of models that reason: only the last answer has its thoughts, so that the text up to an earlier answer's
// end is not the begin of the full text.
TEST(Answers, AreFoundWhereEarlierOnesAreRenderedDifferently) {
  constexpr const char* kReasons =
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' and loop.last %}<think></think>{% endif %}"
      "{{ m.content | trim }}</>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
  EXPECT_EQ(bracketed(kReasons, kTwoTurns), "<user>1</><assistant>[2</>]<user>3</><assistant>[<think></think>4</>]");
  // One that opens the thoughts in the prompt for an answer.
  const std::string opens =
      std::string(kReasons).replace(std::string(kReasons).rfind("<assistant>"), 11, "<assistant><think>\n");
  EXPECT_EQ(bracketed(opens.c_str(), kTwoTurns),
            "<user>1</><assistant>[2</>]<user>3</><assistant><think>[</think>4</>]");
}

// A turn ends with one mark, and the full text with another or one more.
TEST(Answers, EndWithTheMarkOfATurn) {
  constexpr const char* kOneMore =
      "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
      "{% if add_generation_prompt %}<|assistant|>{% else %}<|eos|>{% endif %}";
  EXPECT_EQ(bracketed(kOneMore, kTwoTurns),
            "<|user|>1<|end|><|assistant|>[2<|end|>]<|user|>3<|end|><|assistant|>[4<|end|><|eos|>]");
  constexpr const char* kAnother =
      "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
      "{% if loop.last and m.role == 'assistant' %}<|return|>{% else %}<|end|>{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}<|assistant|>{% endif %}";
  EXPECT_EQ(bracketed(kAnother, kTwoTurns),
            "<|user|>1<|end|><|assistant|>[2<|end|>]<|user|>3<|end|><|assistant|>[4<|return|>]");
}

// A prompt that says that there are no thoughts is not the begin of a text that has some.
TEST(Answers, HaveTheirThoughtsAndCalls) {
  constexpr const char* kThinks =
      "{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>"
      "{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}:"
      "{{ c.function.arguments.a }}</call>{% endfor %}</>{% endfor %}"
      "{% if add_generation_prompt %}<assistant><think></think>{% endif %}";
  EXPECT_EQ(bracketed(kThinks, R"({"messages": [{"role": "user", "content": "1"},
                {"role": "assistant", "content": "2", "reasoning_content": "r"}]})"),
            "<user>1</><assistant><think>[r</think>2</>]");
  EXPECT_EQ(bracketed(kThinks, R"({"messages": [{"role": "user", "content": "1"},
                {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 5}}}]},
                {"role": "tool", "content": "3"}, {"role": "assistant", "content": "4"}]})"),
            "<user>1</><assistant>[<call>f:5</call></>]<tool>3</><assistant>[4</>]");
}

TEST(Answers, HaveOneDate) {
  EXPECT_EQ(bracketed("{{ strftime_now('%d %b %Y') }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
                      "{% if add_generation_prompt %}<assistant>{% endif %}",
                      R"({"prompt": "1", "completion": "2"})"),
            "26 Jul 2024<user>1<assistant>[2]");
}

// The system's text stands in the last message of the user.
TEST(Answers, AreFoundWhereTheSystemMoves) {
  constexpr const char* kMoves =
      "{% set s = messages[0].content %}{% for m in messages[1:] %}{% if m.role == 'user' %}[INST]"
      "{% if loop.index0 >= messages | length - 3 %}{{ s }} {% endif %}{{ m.content }}[/INST]{% else %}"
      "{{ m.content }}</s>{% endif %}{% endfor %}";
  const std::string record = R"({"system": "S", "messages": [{"role": "user", "content": "1"},
      {"role": "assistant", "content": "2"}, {"role": "user", "content": "3"}, {"role": "assistant", "content": "4"}]})";
  EXPECT_EQ(bracketed(kMoves, record), "[INST]1[/INST][2</s>][INST]S 3[/INST][4</s>]");
}

TEST(Answers, ThatTheTemplateLeavesOutAreRefused) {
  constexpr const char* kOnlyLast = "{% if messages | length > 2 %}x{{ messages[-1].content }}{% else %}y{% endif %}";
  EXPECT_THAT(data_error([&] { bracketed(kOnlyLast, kTwoTurns); }),
              HasSubstr("message 2: the template renders it differently"));
  EXPECT_THAT(data_error([&] { bracketed("{{ raise_exception('no') }}", kTwoTurns); }), HasSubstr("no"));
}

// ------------------------------------------------------------------------------------------------ packing

TEST(Packing, HoldsEachSampleOnceAndWastesLittle) {
  std::mt19937 random(5);
  for (const int capacity : {1, 7, 100, 2049}) {
    std::vector<std::int32_t> lengths(500);
    for (auto& length : lengths) length = static_cast<std::int32_t>(random() % static_cast<unsigned>(capacity + 1));
    const Packs packs = pack_best_fit(lengths, capacity);
    std::map<std::int64_t, int> seen;
    for (std::int64_t i = 0; i < packs.size(); ++i) {
      std::int64_t tokens = 0;
      for (const std::int64_t sample : packs[i]) {
        ++seen[sample];
        tokens += lengths[static_cast<std::size_t>(sample)];
      }
      EXPECT_LE(tokens, capacity);
      EXPECT_GT(tokens, 0);
    }
    std::int64_t all = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      EXPECT_EQ(seen[static_cast<std::int64_t>(i)], lengths[i] > 0 ? 1 : 0);
      all += lengths[i];
    }
    // No fewer packs than all tokens fill; best fit decreasing needs 11/9 of the fewest and 4 more at most.
    const double fewest = std::ceil(static_cast<double>(all) / capacity);
    EXPECT_GE(static_cast<double>(packs.size()), fewest);
    if (capacity > 7) {
      EXPECT_LE(static_cast<double>(packs.size()), 1.1 * fewest + 1) << "half of the room is even";
    }
  }
  EXPECT_EQ(pack_best_fit({}, 8).size(), 0);
}

TEST(Packing, PutsASampleWhereItLeavesTheLeastRoom) {
  const std::vector<std::int32_t> lengths = {2, 7, 3, 6, 0};
  const Packs packs = pack_best_fit(lengths, 10);
  ASSERT_EQ(packs.size(), 2);
  EXPECT_THAT(packs[0], ElementsAre(1, 2));  // 7 + 3
  EXPECT_THAT(packs[1], ElementsAre(3, 0));  // 6 + 2
}

// ------------------------------------------------------------------------------------------------ rows

// A folder with a template, and conversations of which the i-th asks for the letter i.
struct ChatFolder {
  explicit ChatFolder(int count) {
    folder.write("chat_template.jinja",
                 "{% for m in messages %}{{ m.role[0] }}{{ m.content }}.{% endfor %}"
                 "{% if add_generation_prompt %}a{% endif %}");
    std::string lines;
    for (int i = 0; i < count; ++i)
      lines += R"({"prompt": ")" + std::string(1, static_cast<char>('A' + i)) + R"(", "completion": ")" +
               std::string(static_cast<std::size_t>(1 + i % 5), static_cast<char>('a' + i)) + "\"}\n";
    data = folder.write("chats.jsonl", lines);
  }

  DataOptions options(std::int64_t seq_len, const std::string& too_long = "error") const {
    return {
        .dataset = "chat",
        .dataset_path = data,
        .data_order = "auto",
        .chat = {.tokenizer = folder.path(), .tokenizer_fingerprint = "", .chat_template = {}, .too_long = too_long},
        .local_batch_size = 2,
        .seq_len = seq_len};
  }

  TempFolder folder;
  std::filesystem::path data;
};

std::unique_ptr<BatchSource> open(const DataOptions& options) {
  return make_batch_source(options, std::make_shared<ByteTokenizer>());
}

std::string text_of_row(const at::Tensor& row) {
  std::string text;
  for (std::int64_t i = 0; i < row.size(0); ++i) {
    const auto id = row[i].item<std::int64_t>();
    text += id == kIgnoredLabel ? '_' : id == 257 ? '#' : static_cast<char>(id);
  }
  return text;
}

std::vector<std::int64_t> numbers(const at::Tensor& row) {
  return {row.const_data_ptr<std::int64_t>(), row.const_data_ptr<std::int64_t>() + row.size(0)};
}

// "uAaa." + "uBabb." + padding: only what follows the "a" of the assistant is a label, and no label leads from one
// conversation to the next.
TEST(ChatRows, HaveTheLabelsOfTheAnswersAndTheirDocuments) {
  const ChatFolder chats(2);
  const auto source = open(chats.options(/*seq_len=*/15));
  const auto batch = *source->next();
  const at::Tensor tokens = batch.tokens[0], labels = batch.labels[0];
  // The longest conversation comes first: 7 tokens, then 6, then 3 of padding, of which the last one is only a label.
  EXPECT_EQ(text_of_row(tokens), "uB.abb.uA.aa.##");
  EXPECT_EQ(text_of_row(labels), "___bb.____a.___");
  EXPECT_EQ(numbers(batch.documents[0]), (std::vector<std::int64_t>{0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2}));
  EXPECT_THAT(source->description(), HasSubstr("has 2 conversations in 1 row of 16 tokens, 18.8 % of them padding; "
                                               "38.5 % of 13 tokens are trained"));
}

// "uB.abb." has three labels, "uA.aa." two; padding and what has none is divided by one.
TEST(ChatRows, SayHowManyLabelsAConversationHas) {
  const ChatFolder chats(2);
  DataOptions options = chats.options(15);
  EXPECT_FALSE(open(options)->next()->labels_of_sample.defined());
  options.chat.loss_weight = "sample";
  const auto batch = *open(options)->next();
  EXPECT_EQ(numbers(batch.labels_of_sample[0]),
            (std::vector<std::int64_t>{3, 3, 3, 3, 3, 3, 3, 2, 2, 2, 2, 2, 2, 1, 1}));
}

// With more lanes than packs, a step has packs of several passes; none is cut.
TEST(ChatRows, AreWholePacksForAnyNumberOfLanes) {
  const ChatFolder chats(3);
  for (const std::int64_t rows : {1, 2, 5}) {
    DataOptions options = chats.options(15);
    options.local_batch_size = rows;
    const auto source = open(options);
    for (int i = 0; i < 6; ++i) {
      const auto batch = *source->next();
      for (std::int64_t row = 0; row < rows; ++row) {
        EXPECT_EQ(text_of_row(batch.tokens[row]).substr(0, 1), "u");
        EXPECT_EQ(batch.documents[row][0].item<std::int64_t>(), 0);
      }
    }
  }
}

// The rows of a step are the same at any number of ranks, and after a resume at another.
TEST(ChatRows, ArePartOfTheElasticOrder) {
  const ChatFolder chats(20);
  const auto rows_of = [&](int ranks, int first_step, int steps, std::vector<StateEntry>* state) {
    std::vector<std::vector<std::string>> all(static_cast<std::size_t>(steps));
    Values saved = state ? saved_values(*state) : Values();
    std::vector<StateEntry> after;
    for (int rank = 0; rank < ranks; ++rank) {
      DataOptions options = chats.options(24);
      options.local_batch_size = 4 / ranks;
      options.dp_rank = rank;
      options.dp_size = ranks;
      const auto source = open(options);
      if (first_step > 0) source->load_state(saved);
      for (auto& step : all) {
        const auto batch = *source->next();
        for (std::int64_t row = 0; row < batch.tokens.size(0); ++row)
          step.push_back(text_of_row(batch.tokens[row]) + "|" + text_of_row(batch.labels[row]));
      }
      for (StateEntry& entry : source->state()) after.push_back(std::move(entry));
    }
    if (state) *state = after;
    return all;
  };
  const auto expected = rows_of(1, 0, 6, nullptr);
  std::vector<StateEntry> state;
  EXPECT_EQ(rows_of(2, 0, 3, &state), (std::vector(expected.begin(), expected.begin() + 3)));
  EXPECT_EQ(rows_of(4, 3, 3, &state), (std::vector(expected.begin() + 3, expected.end())));
}

TEST(ChatRows, OfATooLongConversationFollowTheKey) {
  const ChatFolder chats(5);  // of 6 to 10 tokens
  EXPECT_THAT(
      data_error([&] { open(chats.options(7)); }),
      HasSubstr("chats.jsonl:4: the conversation has 9 tokens, and a row of seq_len + 1 has 8; set chat.too_long"));
  EXPECT_THAT(open(chats.options(7, "cut"))->description(), HasSubstr("; 2 too long and cut"));
  EXPECT_THAT(open(chats.options(7, "drop"))->description(), HasSubstr("; 2 too long and dropped"));
  EXPECT_THAT(open(chats.options(7, "cut"))->description(), HasSubstr("5 conversations in 5 rows"));
  EXPECT_THAT(open(chats.options(7, "drop"))->description(), HasSubstr("5 conversations in 3 rows"));
  // A cut before the answer leaves nothing to learn.
  EXPECT_THAT(data_error([&] { open(chats.options(3, "cut")); }),
              HasSubstr("is left to train on: 5 conversations; 5 without an answer left"));
}

TEST(ChatRows, OfABadRecordFollowTheKey) {
  const ChatFolder chats(2);
  chats.folder.write("chats.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \"a\"}\n");
  DataOptions options = chats.options(15);
  EXPECT_THAT(data_error([&] { open(options); }), HasSubstr("chats.jsonl:2: expected \"messages\""));
  options.on_bad_record = "skip";
  EXPECT_THAT(open(options)->description(), HasSubstr("2 conversations in 1 row of 16 tokens"));
  EXPECT_THAT(open(options)->description(), HasSubstr("; 1 unusable and skipped"));
}

// In a mixture, rows of text have documents that only the model can find.
TEST(ChatRows, StandBesideRowsOfText) {
  const ChatFolder chats(2);
  const auto text = chats.folder.write("text/a.txt", std::string(400, 'x'));
  DataOptions options = chats.options(15);
  options.dataset_mix = {"1 chat " + chats.data.string(), "1 text " + text.parent_path().string()};
  const auto source = open(options);
  int of_text = 0, of_chat = 0;
  for (int i = 0; i < 8; ++i) {
    const auto batch = *source->next();
    for (std::int64_t row = 0; row < 2; ++row) {
      const bool is_text = text_of_row(batch.tokens[row]).find("xx") != std::string::npos;
      ++(is_text ? of_text : of_chat);
      EXPECT_EQ(batch.documents[row][0].item<std::int64_t>(), is_text ? kUnknownDocument : 0);
      EXPECT_EQ(text_of_row(batch.labels[row]).find('_') == std::string::npos, is_text);
    }
  }
  EXPECT_GT(of_text, 0);
  EXPECT_GT(of_chat, 0);
}

TEST(ChatLengths, OfALaterStartAreThoseOfTheFirst) {
  const TempFolder cache;
  ::setenv("TITAN_DATA_CACHE", cache.path().c_str(), 1);
  const ChatFolder chats(2);
  std::string lines;
  for (int i = 0; i < 1500; ++i) lines += "{\"prompt\": \"" + std::to_string(i) + "\", \"completion\": \"b\"}\n";
  chats.folder.write("chats.jsonl", lines);
  const std::string first = open(chats.options(31))->description();
  EXPECT_FALSE(std::filesystem::is_empty(cache.path()));
  const auto text_of_files = [&] {
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(cache.path()))
      files += entry.path().extension() == ".lengths" ? 1 : 0;
    return files;
  };
  EXPECT_EQ(text_of_files(), 1);
  EXPECT_EQ(open(chats.options(31))->description(), first);
  EXPECT_EQ(text_of_files(), 1);
  // Another row length, another template and other data have lengths of their own.
  open(chats.options(63));
  EXPECT_EQ(text_of_files(), 2);
  chats.folder.write("chat_template.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
  EXPECT_NE(open(chats.options(31))->description(), first);
  EXPECT_EQ(text_of_files(), 3);
  ::unsetenv("TITAN_DATA_CACHE");
}

}  // namespace
}  // namespace titan::data

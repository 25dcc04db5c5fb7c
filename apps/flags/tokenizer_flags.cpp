#include "apps/flags/tokenizer_flags.h"

#include "apps/flags/option_values.h"

namespace titan {
namespace {

constexpr const char* kTextKeyHelp = "the field of JSON lines that holds the document";

void add_tokenizer_option(CLI::App& command, std::string& value) {
  suggest_path(command.add_option("--tokenizer", value, "folder with tokenizer.json or tokenizer.model")->required());
}

void declare_train(CLI::App& app, TokenizerFlags::Train& flags) {
  suggest_path(
      app.add_option("--input", flags.input, "text: a file or a folder, of JSON lines or plain, also .gz and .zst")
          ->required());
  suggest(app.add_option("--dataset", flags.dataset,
                         "kind of input: jsonl or text (default: jsonl where a name ends as such files do)"),
          {"jsonl", "text"});
  app.add_option("--text-key", flags.text_key, kTextKeyHelp)->capture_default_str();
  app.add_option("--vocab-size", flags.vocab_size, "number of pieces")->required()->check(integer_between(2, 1 << 24));
  suggest_path(app.add_option("--output", flags.output, "folder that gets tokenizer.model")->required());
  app.add_option("--type", flags.type, "bpe or unigram")
      ->capture_default_str()
      ->check(CLI::IsMember({"bpe", "unigram"}));
  app.add_option("--on-bad-record", flags.on_bad_record, "error or skip: what a record that cannot be used does")
      ->capture_default_str()
      ->check(CLI::IsMember({"error", "skip"}));
}

void declare_encode(CLI::App& app, TokenizerFlags::Encode& flags) {
  add_tokenizer_option(app, flags.tokenizer);
  app.add_flag("--bos", flags.bos, "begin with the token that begins documents");
  app.add_flag("--eos", flags.eos, "end with the token that ends documents");
  app.add_option("--text-key", flags.text_key, kTextKeyHelp)->capture_default_str();
  suggest_path(app.add_option("--jsonl", flags.jsonl, "FILE of {\"text\": ...} lines, or a folder of such files"));
}

void declare_decode(CLI::App& app, TokenizerFlags::Decode& flags) {
  add_tokenizer_option(app, flags.tokenizer);
  app.add_flag("--skip-special-tokens", flags.skip_special_tokens, "leave out BOS, EOS and their like");
  app.add_flag("--jsonl", flags.jsonl, "print {\"text\": ...} lines, which keep newlines apart");
}

CLI::App& add_word(CLI::App& app, TokenizerFlags& flags, const std::string& word, const std::string& doc) {
  CLI::App* command = app.add_subcommand(word, doc);
  command->callback([&flags, word] { flags.word = word; });
  return *command;
}

}  // namespace

void declare(CLI::App& app, TokenizerFlags& flags) {
  app.name("titan-train tokenizer");
  app.description("Makes tokenizers and runs them.");
  app.require_subcommand(1);
  declare_train(add_word(app, flags, "train", "Makes a SentencePiece tokenizer.model from text."), flags.train);
  declare_encode(
      add_word(app, flags, "encode",
               "Prints the ids of standard input as one JSON array, or of every line of FILE as one array per line."),
      flags.encode);
  declare_decode(add_word(app, flags, "decode",
                          "Prints the text of the JSON arrays on standard input, one per line; a newline separates the "
                          "texts of several."),
                 flags.decode);
}

}  // namespace titan

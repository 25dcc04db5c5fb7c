#include "apps/flags/tokenize_flags.h"

#include "apps/flags/option_values.h"
#include "base/process/processors.h"

namespace titan {

void declare(CLI::App& app, TokenizeFlags& flags) {
  flags.workers = own_processors().quota;
  app.name("titan-train tokenize");
  app.description(
      "Writes the tokens of every document to PREFIX-00000-of-NNNNN.bin and .idx (Megatron's format), for\n"
      "training.dataset = \"indexed\" with training.dataset_path = \"PREFIX\". Stopped or killed, the same command "
      "goes on\n"
      "where it was; the result is the same to the byte.");
  suggest_path(app.add_option("--tokenizer", flags.tokenizer, "folder with the tokenizer, or its file")->required());
  suggest_path(app.add_option("--input", flags.input, "file or folder with the documents")->required());
  auto* output = app.add_option("--output", flags.output, "PREFIX of the files to write; the folder is made");
  suggest_path(output);
  suggest(app.add_option("--dataset", flags.dataset, "kind of input: jsonl or text; chat with --show")
              ->capture_default_str(),
          {"jsonl", "text", "chat"});
  auto* show = app.add_option("--show", flags.show,
                              "print the first N conversations (--dataset chat), with what is trained in color, "
                              "and write nothing")
                   ->check(at_least_one())
                   ->excludes(output);
  suggest_path(app.add_option("--chat-template", flags.chat_template,
                              "with --show: file with the template, or a folder that has one (default: the "
                              "tokenizer's)")
                   ->needs(show));
  app.add_flag("--json", flags.json, "with --show: a JSON object with \"ids\" and \"trained\" a line")->needs(show);
  app.add_option("--text-key", flags.text_key, "the field of JSON lines that holds the document")
      ->capture_default_str();
  app.add_option("--workers", flags.workers, "threads (default: one a core)")->check(at_least_one());
  app.add_flag("--append-bos", flags.append_bos, "begin each document with the tokenizer's BOS, if it has one");
  app.add_flag("--append-eos", flags.append_eos,
               "end each document with the tokenizer's EOS, if it has one; training reads text with both");
  app.add_option("--on-bad-record", flags.on_bad_record, "error or skip")
      ->capture_default_str()
      ->check(CLI::IsMember({"error", "skip"}));
  app.add_flag("--allow-changed-files", flags.allow_changed_files,
               "keep the shards that are there although the input has changed since they were made");
  app.add_option("--shard-documents", flags.shard_documents,
                 "documents of one shard (default: 64 shards of 16 to 100,000 documents)")
      ->check(at_least_one());
}

}  // namespace titan

// The single table of all keys. Parsing, checking, --help and --print-config all use it, so they cannot disagree.
// A row is `add(KEY(section.key), doc, rule, support)` in fields.cpp; the key's text is the path of its member.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/job_config.h"
#include "config/keys/field_values.h"

namespace titan::config {

// Level of support for a key.
enum class Support {
  kSupported,  // carried out
  kNoEffect,   // accepted without effect (the reason says why); any value but the default gives a warning or a note
  kDormant,    // accepted; only refines another key, which does nothing here or cannot be switched on yet
  kNotBuilt,   // any value but the default is an error, with the reason and a fix
};

struct Status {
  Support support = Support::kSupported;
  std::string reason;          // a sentence without a full stop; empty for kSupported
  bool is_only_noted = false;  // for kNoEffect keys without which a run lacks nothing: a note instead of a warning
};

// Constraints on a value, beyond its type. Numbers: bounds. Strings and the entries of lists: choices.
struct Rule {
  StringList choices = {};            // allowed strings; empty: any
  StringList choices_not_built = {};  // TorchTitan's other choices, which get their own error message
  std::optional<double> min = {};
  std::optional<double> max = {};
  bool min_excluded = false;
  bool max_excluded = false;
  bool or_minus_one = false;      // -1 is allowed although below min
  bool non_empty = false;         // no empty string
  bool number_in_string = false;  // the string holds a positive integer (or one of `choices`)
  bool or_one_string = false;     // a file may also write the list of strings as one comma-separated string
};

struct Field {
  std::string key;  // "training.dataloader.num_workers"
  std::string doc;
  Rule rule;
  Status status;
  ValueKind kind;
  bool optional;
  FieldValue (*get)(const JobConfig&);
  void (*set)(JobConfig&, const FieldValue&);  // the value's alternative must be the one of `kind` (or None)
};

// A table of the file, "training.dataloader", and the topic of its keys.
struct TableDoc {
  std::string name;
  std::string doc;
};

// All tables that hold keys, in the order of job_config.h.
std::span<const TableDoc> table_docs();

// All keys, in the order of job_config.h.
std::span<const Field> fields();

// Returns the field of a key; null if the key is unknown.
const Field* find_field(std::string_view key);

// True for every table that holds a key or a table: "", "training", "training.dataloader", ...
bool is_table(std::string_view name);

// The names of all keys, for "did you mean".
const StringList& field_names();

// "training.dataloader.num_workers": the table is "training.dataloader", the last part "num_workers".
std::string table_of(const Field& field);
std::string last_part_of(const Field& field);

FieldValue default_value(const Field& field);

}  // namespace titan::config

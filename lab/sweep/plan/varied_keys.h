// Reads the tables of a sweep's file that vary keys of the job: [sweep.grid], [sweep.zip],
// [[sweep.list]] and [sweep.random]. A key may vary in only one of them.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/keys/fields.h"
#include "config/toml/document.h"
#include "lab/sweep/plan/file_faults.h"
#include "lab/sweep/plan/sweep_spec.h"

namespace titan::sweep {

class VariedKeys {
 public:
  // Adds to `faults` and `spec`, which must outlive it.
  VariedKeys(FileFaults& faults, SweepSpec& spec) : faults_(faults), spec_(spec) {}

  void read_grid(const config::Node& table);
  void read_zip(const config::Node& table);
  void read_list(const config::Node& node);
  void read_random(const config::Node& table);  // table of keys only, without num_trials

  bool empty() const { return claimed_.empty(); }
  std::optional<config::Position> place_of(const std::string& key) const;  // nullopt if the key does not vary

 private:
  struct Leaf {
    const config::Field* field;
    config::Position at;
    const config::Node* node;
  };
  struct Claim {
    std::string block;  // the table that varies the key
    config::Position at;
  };

  std::vector<Leaf> leaves(const config::Node& table, const std::string& prefix = "");
  void claim(const Leaf& leaf, const std::string& block);
  std::optional<config::FieldValue> read_value(const config::Field& field, const config::Node& node);
  std::vector<config::FieldValue> read_values(const config::Field& field, const config::Node& node);
  std::optional<double> read_bound(const config::Field& field, const config::Node& node);
  void read_draw(const Leaf& leaf);
  bool read_range(const Leaf& leaf, const config::Node& range, Draw& draw);

  FileFaults& faults_;
  SweepSpec& spec_;
  std::size_t zip_length_ = 0;
  std::map<std::string, Claim> claimed_;  // by key
};

}  // namespace titan::sweep

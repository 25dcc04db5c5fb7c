// Evaluates a sweep: the ranking, which parameter mattered, and tables of both.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/sweep/results/store.h"

namespace titan::sweep {

// Returns the trials from best to worst: by the number of finished rungs, then by objective; failed trials come last.
std::vector<std::size_t> ranking(const Record& record);

// Judges the trials of a record again, by another objective, from the metrics in their folders
// below `folder`: each finished rung by the rows up to its step. NaN if there is no such row.
void judge_again(Record& record, const std::filesystem::path& folder, const Objective& objective);

// Share of the objective's variance that a parameter explains.
struct Influence {
  std::string key;
  std::size_t num_values = 0;       // number of groups compared
  std::optional<double> explained;  // 0 to 1; nullopt if there are too few trials to tell
  std::optional<double> trend;      // Spearman's rank correlation with the objective; numbers only
  // Keys that vary together with this one, so that the trials cannot tell which of them mattered;
  // `explained` is then empty.
  std::vector<std::string> tied_to = {};
};

// Runs a one-way analysis of variance of the objective's ranks for every key. Trials are grouped by the key's value (a
// number with more than 6 values by equal parts of its ranks), and `explained` is the share of the variance between
// groups, corrected for chance: 1 - (1 - eta^2) (n - 1) / (n - groups), at least 0. Ranks are used so that one diverged
// trial does not decide; groups are used so that an optimum in the middle counts. Trials count with their first rung;
// those whose objective is NaN rank last, and those that failed before it do not count. In the order of record.keys.
std::vector<Influence> influences(const Record& record);

// Returns the ranking as text, with at most `max_rows` rows and the number of remaining trials with a result.
std::string ranking_table(const Record& record, std::size_t max_rows);

// Returns results.csv: one row per trial, best first: rank, trial, name, state, objective, the step
// of the row that it was taken from, steps, starts, seconds, error, then its values.
std::string to_csv(const Record& record);

// Returns a field of a CSV file (RFC 4180), quoted if necessary.
std::string csv_field(const std::string& text);

// Returns "3.1416", with 5 digits, or "nan".
std::string objective_text(double value);

// Returns the state in words; once the sweep is over, a paused trial is "stopped early".
std::string state_text(const Record& record, const Trial& trial);

}  // namespace titan::sweep

// What a sweep found: the ranking, which parameter mattered, and tables of both.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/sweep/results/store.h"

namespace titan::sweep {

// Trials from best to worst: those that got to a later rung first, then by objective; at the end those without one.
std::vector<std::size_t> ranking(const Record& record);

// Judges the trials of a record by another objective, from the metrics in their folders below `folder`: each rung that they
// finished by the rows up to its step. Trials without a row of it have none.
void judge_again(Record& record, const std::filesystem::path& folder, const Objective& objective);

// How much of the objective a parameter explains.
struct Influence {
  std::string key;
  std::size_t num_values = 0;       // groups that were compared
  std::optional<double> explained;  // 0 to 1; nothing when there are too few trials to tell
  std::optional<double> trend;      // Spearman's rank correlation with the objective; numbers only
  // Keys that vary together with this one, so that the trials cannot tell which of them mattered; nothing is explained
  // then.
  std::vector<std::string> tied_to = {};
};

// For every key a one-way analysis of variance of the objective's ranks: trials are grouped by the key's value (a
// number with more than 6 values by equal parts of its ranks), and `explained` is the share of the variance that lies
// between groups, corrected for what chance puts there: 1 - (1 - eta^2) (n - 1) / (n - groups), at least 0. Ranks, so
// that one diverged trial does not decide; groups, so that an optimum in the middle counts. Trials count with their
// first rung, which all have; those whose objective is NaN rank last, failed ones do not count. In the order of
// record.keys.
std::vector<Influence> influences(const Record& record);

// The ranking for a person, with `max_rows` rows at most, and how many trials with a result that leaves out.
std::string ranking_table(const Record& record, std::size_t max_rows);

// results.csv: a row a trial, best first: rank, trial, state, objective, the step of the row that it was taken from,
// steps, starts, seconds, error, then its values.
std::string to_csv(const Record& record);

// A field of a CSV file (RFC 4180): in quotes where it must be.
std::string csv_field(const std::string& text);

// "3.1416": 5 digits, "nan" for none.
std::string objective_text(double value);

// The state in words that fit the end: a paused trial of a sweep that is over was stopped early.
std::string state_text(const Record& record, const Trial& trial);

}  // namespace titan::sweep

// A second simulation of schedules for the tests, written in another way than src/pipeline/timeline.cpp: it reads the
// text of the orders, and advances from event to event.
#pragma once

#include <cstdio>
#include <deque>
#include <map>
#include <queue>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "pipeline/schedule_csv.h"
#include "pipeline/timeline.h"

namespace titan::pipeline::test {

// One action, read from text: "2SEND_F0" -> {2, "SEND_F", 0}; without a microbatch -1.
struct Word {
  int stage = 0, microbatch = -1;
  std::string kind;

  auto key() const { return std::tuple(stage, kind, microbatch); }
};

inline Word read_word(const std::string& text) {
  Word word;
  std::size_t at = text.find_first_not_of("0123456789"), end = text.find_last_not_of("0123456789") + 1;
  word.stage = std::stoi(text.substr(0, at));
  word.kind = text.substr(at, end - at);
  if (end < text.size()) word.microbatch = std::stoi(text.substr(end));
  return word;
}

// Returns the words of a step: two of a pair.
inline std::vector<Word> read_words(const std::string& text) {
  const auto middle = text.find(';');
  if (middle == std::string::npos) return {read_word(text)};
  return {read_word(text.substr(1, middle - 1)), read_word(text.substr(middle + 1, text.find(')') - middle - 1))};
}

struct SecondResult {
  double makespan = 0, busy = 0;
  std::vector<double> idle_between;              // of each rank
  std::vector<int> activations, between_halves;  // the most at once, of each rank
  bool is_complete = false;                      // every microbatch went through every stage once, both ways
};

// Runs the computation from event to event: at each time, steps that end free their rank and hand on their results, and
// then every rank that is free starts its next step if its inputs are there.
inline SecondResult run_events(const PipelineSchedule& schedule, double forward, double input, double weight) {
  const std::map<std::string, double> cost = {{"F", forward}, {"B", input + weight}, {"I", input}, {"W", weight}};
  std::vector<std::vector<std::vector<Word>>> lines;
  std::istringstream csv(schedule_csv(schedule));
  for (std::string line; std::getline(csv, line);) {
    lines.emplace_back();
    std::istringstream cells(line);
    for (std::string cell; std::getline(cells, cell, ',');) lines.back().push_back(read_words(cell));
  }
  const int last = schedule.num_stages() - 1;
  SecondResult out;
  std::vector<std::size_t> next(lines.size());
  std::vector<bool> runs(lines.size());
  std::vector<double> first(lines.size(), -1), ended(lines.size()), busy(lines.size());
  std::vector<int> alive(lines.size()), half(lines.size());
  out.activations.resize(lines.size());
  out.between_halves.resize(lines.size());
  std::map<std::pair<int, int>, std::string> history;   // of a stage and a microbatch: the letters so far
  std::set<std::pair<int, int>> forwarded, backwarded;  // stage and microbatch whose results are there
  using Event = std::pair<double, std::size_t>;         // time and rank
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
  const auto may_start = [&](const Word& word) {
    if (word.kind == "F") return word.stage == 0 || forwarded.contains({word.stage - 1, word.microbatch});
    return word.kind == "W" || word.stage == last || backwarded.contains({word.stage + 1, word.microbatch});
  };
  double now = 0;
  while (true) {
    for (std::size_t rank = 0; rank < lines.size(); ++rank) {
      if (runs[rank] || next[rank] == lines[rank].size()) continue;
      const auto& words = lines[rank][next[rank]];
      bool is_ready = true;
      double takes = 0;
      for (const Word& word : words) {
        is_ready = is_ready && may_start(word);
        takes += cost.at(word.kind);
      }
      if (!is_ready) continue;
      for (const Word& word : words) {
        alive[rank] += word.kind == "F" ? 1 : 0;
        half[rank] += word.kind == "I" ? 1 : 0;
      }
      out.activations[rank] = std::max(out.activations[rank], alive[rank]);
      out.between_halves[rank] = std::max(out.between_halves[rank], half[rank]);
      if (first[rank] < 0) first[rank] = now;
      busy[rank] += takes;
      runs[rank] = true;
      events.emplace(now + takes, rank);
    }
    if (events.empty()) break;
    now = events.top().first;
    while (!events.empty() && events.top().first == now) {
      const std::size_t rank = events.top().second;
      events.pop();
      runs[rank] = false;
      ended[rank] = now;
      for (const Word& word : lines[rank][next[rank]]) {
        history[{word.stage, word.microbatch}] += word.kind;
        if (word.kind == "F") forwarded.insert({word.stage, word.microbatch});
        if (word.kind == "B" || word.kind == "I") backwarded.insert({word.stage, word.microbatch});
        alive[rank] -= word.kind == "B" || word.kind == "W" ? 1 : 0;
        half[rank] -= word.kind == "W" ? 1 : 0;
      }
      ++next[rank];
    }
  }
  out.makespan = now;
  out.is_complete = static_cast<int>(history.size()) == schedule.num_stages() * schedule.num_microbatches;
  for (const auto& [place, letters] : history)
    out.is_complete = out.is_complete && (letters == "FB" || letters == "FIW");
  for (std::size_t rank = 0; rank < lines.size(); ++rank) {
    out.busy += busy[rank];
    out.idle_between.push_back(ended[rank] - first[rank] - busy[rank]);
  }
  return out;
}

// Runs a schedule with communication on queues, one per pair of ranks, taking ranks at random. A message that is not
// the oldest of its queue ends the run. Returns true if every rank comes to its end.
inline bool run_queues(const PipelineSchedule& schedule, bool sends_wait, std::mt19937& random) {
  struct Rank {
    std::vector<std::string> texts;
    std::size_t next = 0;
  };
  std::vector<Rank> ranks(schedule.orders.size());
  std::size_t left = 0;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    for (const Step& step : schedule.orders[rank]) {
      ranks[rank].texts.push_back(to_text(step));
      ++left;
    }
  std::map<std::pair<int, int>, std::deque<std::string>> queues;
  const auto rank_of = [&](int stage) { return schedule.rank_of_stage.at(stage); };
  std::set<std::tuple<int, std::string, int>> received;
  while (left > 0) {
    std::vector<int> movable;
    for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
      if (ranks[rank].next == ranks[rank].texts.size()) continue;
      const Word word =
          read_word(ranks[rank].texts[ranks[rank].next][0] == '(' ? "0F0" : ranks[rank].texts[ranks[rank].next]);
      const int side = word.kind == "SEND_F" ? 1 : -1;
      if (word.kind == "SEND_F" || word.kind == "SEND_B") {
        const int peer = rank_of(word.stage + side);
        const Rank& other = ranks[peer];
        const std::string wanted =
            std::to_string(word.stage + side) + "RECV" + word.kind.substr(4) + std::to_string(word.microbatch);
        if (sends_wait && (other.next == other.texts.size() || other.texts[other.next] != wanted)) continue;
      } else if (word.kind == "RECV_F" || word.kind == "RECV_B") {
        const int from = rank_of(word.kind == "RECV_F" ? word.stage - 1 : word.stage + 1);
        const auto& queue = queues[{from, rank}];
        if (queue.empty() || queue.front() != ranks[rank].texts[ranks[rank].next]) continue;
      }
      movable.push_back(rank);
    }
    if (movable.empty()) return false;
    const int rank = movable[random() % movable.size()];
    const std::string text = ranks[rank].texts[ranks[rank].next++];
    --left;
    if (text[0] == '(') continue;
    const Word word = read_word(text);
    if (word.kind == "SEND_F" || word.kind == "SEND_B") {
      const int to = word.kind == "SEND_F" ? word.stage + 1 : word.stage - 1;
      queues[{rank, rank_of(to)}].push_back(std::to_string(to) + "RECV" + word.kind.substr(4) +
                                            std::to_string(word.microbatch));
    } else if (word.kind == "RECV_F" || word.kind == "RECV_B") {
      queues[{rank_of(word.kind == "RECV_F" ? word.stage - 1 : word.stage + 1), rank}].pop_front();
      received.insert(word.key());
    } else if (word.kind == "F" && word.stage > 0 && rank_of(word.stage - 1) != rank) {
      if (!received.contains({word.stage, "RECV_F", word.microbatch})) return false;
    } else if ((word.kind == "B" || word.kind == "I") && word.stage + 1 < schedule.num_stages() &&
               rank_of(word.stage + 1) != rank) {
      if (!received.contains({word.stage, "RECV_B", word.microbatch})) return false;
    }
  }
  return true;
}

}  // namespace titan::pipeline::test

#include "metrics/make_sinks.h"

#include <spdlog/fmt/fmt.h>

#include <charconv>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "config/keys/print.h"
#include "config/paths.h"
#include "metrics/console_sink.h"
#include "metrics/grad_scale_watch.h"
#include "metrics/guarded_sinks.h"
#include "metrics/history/csv_sink.h"
#include "metrics/jsonl_sink.h"
#include "metrics/progress_bar.h"
#include "metrics/tensorboard/event_file.h"
#include "metrics/tensorboard/tensorboard_sink.h"

namespace titan::metrics {
namespace {

constexpr std::string_view kRankPrefix = "rank_";

// Returns the N of a folder rank_N, or nullopt.
std::optional<int> rank_of(const std::string& name) {
  if (!name.starts_with(kRankPrefix)) return std::nullopt;
  int rank = 0;
  const char* const last = name.data() + name.size();
  const auto [end, error] = std::from_chars(name.data() + kRankPrefix.size(), last, rank);
  return error == std::errc() && end == last ? std::optional(rank) : std::nullopt;
}

// Returns the folders that earlier starts wrote to, with other ranks or another metrics.save_for_all_ranks, but this
// start does not.
std::vector<std::filesystem::path> abandoned_folders(const std::filesystem::path& folder, int num_reporters) {
  std::vector<std::filesystem::path> found;
  if (num_reporters > 0) found.push_back(folder);
  if (!std::filesystem::is_directory(folder)) return found;
  std::error_code error;  // of a link that leads nowhere, or to itself
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const auto rank = rank_of(entry.path().filename().string());
    if (rank && *rank >= num_reporters && entry.is_directory(error)) found.push_back(entry.path());
  }
  return found;
}

// Returns the end of the names of the run's event files: a checksum of its dump folder, if they are elsewhere.
std::string end_of_names(const std::filesystem::path& folder, const config::JobConfig& config) {
  if (!config::is_outside_dump_folder(folder, config)) return "";
  return fmt::format("{}{:08x}", tensorboard::kRunMark,
                     tensorboard::crc32c(config::real_path(config.job.dump_folder).string()));
}

std::unique_ptr<MetricsSink> make_tensorboard_sink(const config::JobConfig& config, std::int64_t finished_steps,
                                                   Reporter reporter) {
  const bool is_for_all = config.metrics.save_for_all_ranks;
  if (!config.metrics.enable_tensorboard || (reporter.rank > 0 && !is_for_all)) return nullptr;
  const auto folder = std::filesystem::path(config.job.dump_folder) / config.metrics.save_tb_folder;
  tensorboard::SinkOptions options;
  options.folder = is_for_all ? folder / (std::string(kRankPrefix) + std::to_string(reporter.rank)) : folder;
  options.finished_steps = finished_steps;
  options.configuration = config::to_toml(config);
  options.end_of_names = end_of_names(folder, config);
  if (reporter.rank == 0) options.abandoned = abandoned_folders(folder, is_for_all ? reporter.world_size : 0);
  return std::make_unique<tensorboard::TensorBoardSink>(std::move(options));
}

// Returns null for null.
std::unique_ptr<MetricsSink> expendable(const char* files, std::unique_ptr<MetricsSink> sink) {
  return sink ? std::make_unique<ExpendableSink>(Expendable(files), std::move(sink)) : nullptr;
}

}  // namespace

std::vector<std::unique_ptr<MetricsSink>> make_sinks(const config::JobConfig& config, std::int64_t finished_steps,
                                                     Reporter reporter) {
  std::vector<std::unique_ptr<MetricsSink>> sinks;
  const auto add = [&](std::unique_ptr<MetricsSink> sink) {
    if (sink) sinks.push_back(std::move(sink));
  };
  if (reporter.rank == 0) {
    add(std::make_unique<RecordSink>(std::make_unique<JsonlSink>(config.job.dump_folder, finished_steps)));
    if (config.metrics.enable_csv)
      add(expendable("metrics.csv and validation.csv",
                     std::make_unique<CsvSink>(config.job.dump_folder, finished_steps)));
  }
  add(std::make_unique<ConsoleSink>(!config.metrics.disable_color_printing));
  if (reporter.rank == 0) {
    add(make_progress_bar(config.training.steps));
    add(std::make_unique<GradScaleWatch>());
  }
  add(expendable("TensorBoard's files", make_tensorboard_sink(config, finished_steps, reporter)));
  return sinks;
}

}  // namespace titan::metrics

// Sinks around other sinks that say what happens if these cannot write, for example on a full disk: one that a run can
// do without ends with a warning, and the one that a resumed run continues ends the run after a save.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "metrics/history/expendable.h"
#include "metrics/rows/step_metrics.h"

namespace titan::metrics {

// Passes every call of the training thread on to `sink`, each within Guard::run().
template <typename Guard>
class GuardedSink : public MetricsSink {
 public:
  GuardedSink(Guard guard, std::unique_ptr<MetricsSink> sink) : guard_(std::move(guard)), sink_(std::move(sink)) {}

  void log(const StepMetrics& metrics) override {
    guard_.run([&] { sink_->log(metrics); });
  }
  void log_validation(const ValidationMetrics& metrics) override {
    guard_.run([&] { sink_->log_validation(metrics); });
  }
  void log_evaluation(const EvaluationMetrics& metrics) override {
    guard_.run([&] { sink_->log_evaluation(metrics); });
  }
  void log_gradient_norms(std::int64_t step, std::span<const double> norms) override {
    guard_.run([&] { sink_->log_gradient_norms(step, norms); });
  }
  void on_step(std::int64_t step) override {
    guard_.run([&] { sink_->on_step(step); });
  }
  void roll_back(std::int64_t finished_steps) override {
    guard_.run([&] { sink_->roll_back(finished_steps); });
  }
  void check() override {
    guard_.run([&] { sink_->check(); });
  }

 protected:
  Guard guard_;

 private:
  std::unique_ptr<MetricsSink> sink_;
};

// A sink whose files a run can do without.
using ExpendableSink = GuardedSink<Expendable>;

// Runs what writes the record of the run.
class Record {
 public:
  // Calls `write`. If that throws, keeps the reason, and every later call does nothing: whoever runs the steps has to
  // end the run.
  template <typename Write>
  void run(const Write& write) {
    if (!failure_.empty()) return;
    try {
      write();
    } catch (const std::exception& error) {
      fail(error);
    }
  }
  const std::string& failure() const { return failure_; }

 private:
  void fail(const std::exception& error);

  std::string failure_;
};

// The sink that a resumed run continues.
class RecordSink : public GuardedSink<Record> {
 public:
  explicit RecordSink(std::unique_ptr<MetricsSink> sink) : GuardedSink(Record(), std::move(sink)) {}
  const std::string& failure() const override { return guard_.failure(); }
};

}  // namespace titan::metrics

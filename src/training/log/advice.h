#pragma once

#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/training/run/training_run.h"
#include <tessera/training/config/config.h>

/// Warnings about settings and data that are allowed, but keep a run from learning or make it slow.
namespace tessera {

/// Times measured over a period of training, in seconds.
struct DataWindow {
  double seconds = 0;       // wall-clock time
  double wait_seconds = 0;  // the part of `seconds` spent waiting for data
  double work_seconds = 0;  // time spent reading and decoding samples, summed over all decoding threads
  double cpu_seconds = 0;   // the CPU time within work_seconds
};

/// What a rule may look at. Each event of a run sets only some members.
struct RunEvent {
  const Batch* batch = nullptr;                                        // a batch on the CPU, before its step
  const LoaderStatistics* loader = nullptr;                            // the counts of this session, after a step
  bool first_epoch_over = false;                                       // true if that step ended the run's first epoch
  std::int64_t step = 0;                                               // the step of `terms`
  const std::vector<std::pair<std::string, double>>* terms = nullptr;  // the terms of a step's loss
  DataWindow data = {};                                                // the time since the previous row of the log
  double now = 0;                                                      // when `data` ended, in seconds of any clock
};

/// A rule looks at every event and returns warnings, if there is a reason to warn. After a warning, it is not asked for `pause` seconds.
struct AdviceRule {
  std::function<std::vector<std::string>(const RunEvent&)> look;
  double pause = std::numeric_limits<double>::infinity();
  std::optional<double> last_said = std::nullopt;
};

/// Returns the warnings of those rules that may speak.
std::vector<std::string> advise(std::vector<AdviceRule>& rules, const RunEvent& event);

/// Returns the rules for a run.
std::vector<AdviceRule> advice_rules(const Config& config, const TrainingRun& run, int ranks);

/// Many pairs of the first batches cannot be distinguished, because their captions are equal: at least a quarter of a batch has the same
/// caption, or a contrastive loss cannot fall below half of its chance level, in three batches. `tokenizer` decodes the repeated caption.
AdviceRule equal_captions(const std::string& view, std::shared_ptr<const Tokenizer> tokenizer);
/// Terms of the loss (Objective::chance_levels) are at least 97% of their chance levels, on average over about fifty steps, at step `begin`
/// or later. If a source has separate batches, the names of its terms begin with its label.
AdviceRule stays_at_chance(const std::map<std::string, double>& levels, std::int64_t begin, double learning_rate = 0,
                           const std::vector<std::string>& frozen = {});
/// After ten steps, a view has lost a quarter of its tokens to the tokenizer's context length.
AdviceRule cuts_much(std::int64_t context);
/// Over at least ten seconds, training waited for data for more than a fifth of the time. Says why.
AdviceRule waits_for_data(std::int64_t threads, std::int64_t cores);

/// Returns a warning if settings count more steps than the run has. Runs whose length is not known yet get none.
std::optional<std::string> longer_than_run(const Config& config);

/// Returns warnings, one line each, that are known before the first step: a contrastive loss over a batch of one, a micro-batch larger than
/// the batch, settings longer than the run, a disk without room for the checkpoints.
std::vector<std::string> start_advice(const TrainingRun& run, const Config& config, int ranks);

/// Returns a warning about a precision in which matrix products take `times_float32` times as long as in float32; nothing if they
/// are not notably slower.
std::optional<std::string> slow_precision_text(const std::string& precision, double times_float32);
/// Measures this factor on the CPU, which takes a few milliseconds. On a GPU or for float32, measures and returns nothing.
std::optional<std::string> slow_precision(const at::Device& device, const std::string& precision);

/// What the tokenizer's context length cut off in an epoch: a line for each view that lost tokens, and columns for a row of the log with
/// the shares of its tokens ("tokens.VIEW") and of its texts ("texts.VIEW") that were cut. Each process counts its own samples.
struct CutReport {
  std::vector<std::string> lines;
  std::vector<std::pair<std::string, double>> shares;
};
/// `before` and `after` are LoaderStatistics::cuts at the epoch's begin and end.
CutReport report_cuts(std::int64_t epoch, std::int64_t context, const std::map<std::string, TextCuts>& before,
                      const std::map<std::string, TextCuts>& after);

}  // namespace tessera

#include "src/evaluation/tasks/check_samples.h"

#include <algorithm>

#include <tessera/data/stream.h>

namespace tessera {
namespace {

// Usually the first few samples already have what a task needs, but sometimes only one sample in a few hundred has it.
constexpr std::int64_t kFewSamples = 8, kMostSamples = 256;

struct Looks {
  std::int64_t readable = 0, having = 0;
};

/// Returns a function that returns a different sample at each of at most `looks` calls. The returned samples are spread over the first
/// `count` samples of the source. If the source is a stream, its first samples are returned.
std::function<Sample()> some_samples(const Source& source, std::int64_t count, std::int64_t looks) {
  const SourceKind kind = source.kind();
  if (const auto* stream = std::get_if<const StreamSource*>(&kind)) {
    StreamStart start;
    start.shuffle = false;
    return [samples = std::shared_ptr<SampleStream>((*stream)->open(start))] { return samples->next()(); };
  }
  return [&samples = indexed(source), count, looks, next = std::int64_t{0}]() mutable {
    return samples.get(next++ * count / looks);
  };
}

Looks look_at(const Source& source, std::int64_t count, std::int64_t most, const Required& required,
              const std::function<void(const Sample&)>& look) {
  const std::int64_t looks = std::min(count, most);
  const auto next = some_samples(source, count, looks);
  Looks out;
  for (std::int64_t i = 0; i < looks; ++i) {
    try {
      const Sample sample = next();
      ++out.readable;
      if (!required.in(sample)) continue;
      ++out.having;
      if (look) look(sample);
    } catch (const SampleError&) {
      continue;  // the task itself will count this sample as skipped
    }
  }
  return out;
}

std::int64_t looked_through(const Source& source, std::int64_t max_samples) {
  return max_samples < 0 ? source.size() : std::min(max_samples, source.size());
}

}  // namespace

bool some_sample_has(const Source& source, std::int64_t max_samples, const Required& required,
                     const std::function<void(const Sample&)>& look) {
  const std::int64_t count = looked_through(source, max_samples);
  Looks seen = look_at(source, count, kFewSamples, required, look);
  if (seen.having == 0) seen = look_at(source, count, kMostSamples, required, look);
  return seen.having > 0 || seen.readable == 0;
}

void check_samples(const Source& source, const std::string& setting, std::int64_t max_samples, const Required& required,
                   const std::function<void(const Sample&)>& look) {
  if (some_sample_has(source, max_samples, required, look)) return;
  const std::int64_t count = looked_through(source, max_samples);
  const std::string which = count <= kMostSamples ? "no sample of " + source.describe()
                                                  : concat("none of ", kMostSamples, " samples of ", source.describe());
  throw TaskMisfit(concat(which, " ", lacking(source, required), ": name other data in its `", setting,
                          "`, or leave the task out"));
}

void check_train_and_test(const std::string& task, const TrainTestData& data, const EvaluationContext& context,
                          const Required& required) {
  const auto train = open_samples(data.train, context.train_source, task + ".train");
  check_samples(*train, "train", data.max_train_samples, required);
  const auto test = open_samples(data.source, context.source, task + ".source");
  check_samples(*test, "source", data.max_samples, required);
}

}  // namespace tessera

#include "src/data/loading/sample_reader.h"

#include <chrono>
#include <thread>

#include "src/data/loading/stream_reader.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>

namespace tessera {
namespace {

/// Reads a source with random access, and retries if it fails.
class IndexedReader : public SampleReader {
 public:
  IndexedReader(std::shared_ptr<const IndexedSource> source, const LoaderSettings& settings,
                std::shared_ptr<WorkTotals> work)
      : source_(std::move(source)), settings_(settings), work_(std::move(work)) {}

  Sample read(std::int64_t /*ticket*/, const DataPosition& /*place*/, std::int64_t index, const Pause& pause) override {
    const WorkTime time(*work_);
    double seconds = settings_.retry_seconds;
    for (std::int64_t attempt = 1;; ++attempt, seconds *= 2) {
      std::string what;
      try {
        return source_->get(index);
      } catch (const UserError& error) {
        what = error.what();
      }
      if (attempt > settings_.retries) {
        what += concat(" (", source_->name_of(index), "; tried ", attempt, attempt == 1 ? " time)" : " times)");
        if (settings_.on_failure == "skip") throw SampleError("io_error", what);
        throw UserError(what);
      }
      pause(seconds, what);
    }
  }

  void pass(std::int64_t /*ticket*/) override {}
  void stop() override {}

 private:
  const std::shared_ptr<const IndexedSource> source_;
  const LoaderSettings settings_;
  const std::shared_ptr<WorkTotals> work_;
};

}  // namespace

void pause_and_tell(double seconds, const std::string& what) {
  log::warning("data: ", what, "; trying again in ", seconds, " s");
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

std::shared_ptr<SampleReader> make_sample_reader(const std::shared_ptr<const Source>& source,
                                                 const LoaderSettings& settings, std::uint64_t seed,
                                                 const RankSlice& slice, std::shared_ptr<WorkTotals> work) {
  const SourceKind kind = source->kind();
  if (const auto* stream = std::get_if<const StreamSource*>(&kind))
    return std::make_shared<StreamReader>(std::shared_ptr<const StreamSource>(source, *stream), seed, settings.shuffle,
                                          slice);
  return std::make_shared<IndexedReader>(indexed(source), settings, std::move(work));
}

std::shared_ptr<SampleReader> make_ordered_reader(const std::shared_ptr<const Source>& source,
                                                  LoaderSettings settings) {
  settings.shuffle = false;
  return make_sample_reader(source, settings, 0, {}, std::make_shared<WorkTotals>());
}

std::shared_ptr<SampleReader> make_ordered_reader(const Source& source) {
  return make_ordered_reader(std::shared_ptr<const Source>(std::shared_ptr<const void>(), &source));
}

}  // namespace tessera

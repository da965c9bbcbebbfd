#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "src/data/loading/ordered_workers.h"
#include "src/data/loading/sample_reader.h"
#include <tessera/base/error.h>
#include <tessera/data/mixing.h>
#include <tessera/data/stream.h>

namespace tessera {

/// Which samples of a source to read once, in order, and how.
struct PassPlan {
  std::shared_ptr<const Source> source;
  std::int64_t count = 0;     // number of samples to read
  std::int64_t threads = 1;
  std::int64_t ahead = 1;     // maximum number of results that are ready or being made
  std::function<std::int64_t(std::int64_t number)> place = [](std::int64_t number) { return number; };  // increasing indices of samples
  std::string described = source->describe();                // the source in messages
  std::shared_ptr<MemoryBudget> budget = nullptr;            // limits the memory of the samples; null: no limit
  LoaderSettings settings = [] {                             // retries and time limits
    LoaderSettings patient;
    patient.timeout = 0;
    return patient;
  }();
};

/// Returns a plan for at most `most` samples of a component of the source, spread over it, or the first ones of a stream, because a stream
/// would have to be read up to the others.
inline PassPlan plan_component(const std::shared_ptr<const Source>& source, const SourceComponent& component, std::int64_t most,
                               const LoaderSettings& settings) {
  const std::int64_t count = std::min(component.size, most), size = component.size, first = component.first;
  const bool is_stream = std::holds_alternative<const StreamSource*>(source->kind());
  return {.source = source,
          .count = count,
          .threads = std::min(count, settings.threads),
          .ahead = settings.threads,
          .place = [=](std::int64_t i) { return first + (is_stream ? i : i * size / count); },
          .described = component.described,
          .settings = settings};
}

/// One pass over samples of a source. Threads read the samples and make a result of each, ahead of its use. Result derives from
/// SampleOutcome.
template <class Result>
class SamplePass {
 public:
  /// Makes the result of sample `index`. Called from several threads. A SampleError makes the sample bad.
  using Make = std::function<void(Sample& sample, std::int64_t index, Result& out)>;

  SamplePass(const PassPlan& plan, Make make)
      : reader_(make_ordered_reader(plan.source, plan.settings)),
        budget_(plan.budget),
        wait_policy_{plan.settings.warn_after, plan.settings.timeout, plan.described,
                     [source = plan.source, place = plan.place](std::int64_t number) { return source->name_of(place(number)); }, {}},
        results_(plan.threads, plan.ahead, plan.count,
                 [reader = reader_, budget = budget_, source = plan.source, count = plan.count, place = plan.place,
                  make = std::move(make)](std::int64_t number, std::int64_t) {
                   Result out;
                   const std::int64_t index = place(number);
                   // A few samples of many are not announced, so that whole files are not fetched for them.
                   const std::int64_t ahead = 4 * count < source->size() ? 0 : source->read_ahead();
                   for (std::int64_t i = number == 0 ? 0 : number + ahead; ahead > 0 && i <= number + ahead && i < count; ++i)
                     source->will_read(place(i));
                   out.key = concat("number ", index);
                   try {
                     Sample sample = reader->read_in_order(number, index);
                     out.key = sample.key;
                     if (budget) out.claim = budget->claim_sample(number, working_bytes(sample));
                     make(sample, index, out);
                   } catch (const SampleError& error) {
                     out.reject(error);
                   }
                   return out;
                 }) {
    if (plan.settings.timeout > 0) results_.abandon_after(kAbandonAfter);
  }
  ~SamplePass() {
    if (budget_) budget_->stop();
    reader_->stop();
  }

  /// Returns the next result; for a bad sample, it has the reason. Throws UserError if the source does, or after the time limit.
  Result next() {
    if (budget_) budget_->set_due(next_);
    ++next_;
    return results_.take(&wait_policy_);
  }

 private:
  std::shared_ptr<SampleReader> reader_;
  std::shared_ptr<MemoryBudget> budget_;
  WaitPolicy wait_policy_;
  std::int64_t next_ = 0;
  OrderedWorkers<Result> results_;
};

}  // namespace tessera

#include "src/data/loading/caption_entries.h"

#include <algorithm>

#include "src/data/loading/ordered_workers.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

constexpr std::int64_t kAsked = 256;  // number of samples whose captions are counted per work item

std::vector<std::int64_t> count_captions(const IndexedSource& source, std::int64_t first) {
  std::vector<std::int64_t> counts;
  for (std::int64_t i = first; i < std::min(first + kAsked, source.size()); ++i) {
    try {
      counts.push_back(std::max<std::int64_t>(1, source.caption_count(i)));
    } catch (const SampleError&) {
      counts.push_back(1);
    }
  }
  return counts;
}

}  // namespace

CaptionEntries::CaptionEntries(const std::shared_ptr<const IndexedSource>& source, const LoaderSettings& settings) {
  const std::int64_t chunks = (source->size() + kAsked - 1) / kAsked;
  OrderedWorkers<std::vector<std::int64_t>> workers(
      settings.threads, 4 * settings.threads, chunks,
      [source](std::int64_t ticket, std::int64_t) { return count_captions(*source, ticket * kAsked); });
  workers.abandon_after(kAbandonAfter);
  const WaitPolicy wait_policy{settings.warn_after, settings.timeout, source->describe(), [](std::int64_t ticket) {
                                 return concat("the number of captions of sample number ", ticket * kAsked,
                                               " and those after it");
                               }};
  first_ = {0};
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
    for (const std::int64_t count : workers.take(&wait_policy)) first_.push_back(first_.back() + count);
  log::info("data: ", source->describe(), ": ", with_thousands(size()), " image-caption pairs");
}

CaptionEntries::Pair CaptionEntries::at(std::int64_t entry) const {
  const auto next = std::upper_bound(first_.begin(), first_.end(), entry);
  return {next - first_.begin() - 1, entry - *(next - 1)};
}

std::vector<SourceComponent> CaptionEntries::counted(std::vector<SourceComponent> components) const {
  for (SourceComponent& component : components) {
    const std::int64_t begin = first_[static_cast<std::size_t>(component.first)];
    component.size = first_[static_cast<std::size_t>(component.first + component.size)] - begin;
    component.first = begin;
  }
  return components;
}

}  // namespace tessera

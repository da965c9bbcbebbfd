#include "src/data/packing/count_concepts.h"

#include "src/data/loading/sample_pass.h"
#include "src/data/sources/source_view.h"
#include "src/io/mapped_file.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

struct FoundConcepts : SampleOutcome {
  std::vector<std::int32_t> entries;
};

/// Shows the captions of a source without its images.
class CaptionsOnly : public SourceView {
 public:
  using SourceView::SourceView;
  std::int64_t size() const override { return source_->size(); }
  std::string describe() const override { return source_->describe(); }
  Sample get(std::int64_t index) const override {
    Sample out;
    out.captions = source_->captions(index);
    return out;
  }

 private:
  std::int64_t of_source(std::int64_t index) const override { return index; }
};

std::shared_ptr<const Source> without_images(const std::shared_ptr<const Source>& source) {
  if (std::holds_alternative<const StreamSource*>(source->kind())) return source;
  return std::make_shared<CaptionsOnly>(indexed(source));
}

/// Calls visit(entries) with what was found in each sample.
template <class Visit>
void for_each_found(io::ScratchFile& file, const Visit& visit) {
  const std::string_view bytes = file.bytes();
  const auto* next = reinterpret_cast<const std::int32_t*>(bytes.data());
  std::vector<std::int32_t> found;
  for (const auto* end = next + bytes.size() / sizeof(std::int32_t); next < end; next += found.size() + 1) {
    found.assign(next + 1, next + 1 + *next);
    visit(found);
  }
}

}  // namespace

CountedConcepts count_concepts(const std::shared_ptr<const Source>& source, std::vector<std::string> entries, const std::string& origin,
                               const std::vector<std::int64_t>& thresholds, std::int64_t threads, const std::string& scratch,
                               const std::function<void(std::int64_t done, std::int64_t total)>& progress) {
  CountedConcepts out;
  const auto matcher = std::make_shared<const ConceptMatcher>(entries, origin);
  out.counts = {std::move(entries), {}};
  out.counts.counts.resize(out.counts.entries.size());
  io::ScratchFile file(scratch);
  const std::shared_ptr<const Source> texts = without_images(source);
  SamplePass<FoundConcepts> pass({.source = texts, .count = texts->size(), .threads = threads, .ahead = 64 * threads},
                                 [matcher](Sample& sample, std::int64_t, FoundConcepts& found) {
                                   if (sample.captions.empty()) throw SampleError("no_caption", concat("sample ", sample.key, " has no caption"));
                                   found.entries = matcher->find(sample.captions);
                                 });
  for (std::int64_t i = 0; i < texts->size(); ++i) {
    const FoundConcepts found = pass.next();
    progress(i + 1, texts->size());
    if (!found.good()) {
      ++out.left_out[found.bad_reason];
      continue;
    }
    ++out.samples;
    if (found.entries.empty()) continue;
    ++out.matched;
    for (const std::int32_t entry : found.entries) ++out.counts.counts[static_cast<std::size_t>(entry)];
    const auto size = static_cast<std::int32_t>(found.entries.size());
    file.append(&size, sizeof(size));
    file.append(found.entries.data(), sizeof(std::int32_t) * found.entries.size());
  }
  if (out.matched == 0) {
    const std::string where = source->describe_fields({"caption"});
    user_error(source->describe(), ": no sample contains an entry of ", origin, out.left_out.empty() ? "" : ": left out " + describe_counts(out.left_out),
               out.samples > 0 || where.empty() ? "" : ". " + where);
  }
  out.kept.resize(thresholds.size());
  for_each_found(file, [&](const std::vector<std::int32_t>& found) {
    for (std::size_t i = 0; i < thresholds.size(); ++i) out.kept[i] += out.counts.keep_probability(found, static_cast<double>(thresholds[i]));
  });
  return out;
}

}  // namespace tessera

#include <algorithm>
#include <chrono>

#include "src/data/image/decode.h"
#include "src/data/loading/evaluation_reader.h"
#include "src/data/loading/sample_pass.h"
#include "src/data/loading/skip_log.h"
#include "src/data/loading/reported_samples.h"
#include <tessera/base/error.h>
#include <tessera/data/image/transforms.h>
#include <tessera/data/loading/loader.h>

namespace tessera {
namespace {

constexpr std::int64_t kMostAhead = 64;       // maximum number of samples prepared ahead; their images have full size
constexpr std::int64_t kMostBytes = 1 << 30;  // memory limit for the samples prepared ahead and those being prepared

struct Outcome : SampleOutcome {
  EvaluationSample sample;
};

/// How to process a sample's image.
struct ImageWork {
  Preprocessing preprocessing;
  EvaluationImages images;
  IsKnownImage is_known;
};

bool is_known(EvaluationSample& sample, const ImageWork& work) {
  if (!work.is_known || !has_image(sample.sample)) return false;
  sample.image = image_fingerprint(sample.sample);
  return work.is_known(sample.image);
}

void process(Sample& read, std::int64_t index, const ImageWork& work, Outcome& out) {
  out.sample.index = index;
  out.sample.sample = std::move(read);
  if (work.images == EvaluationImages::as_read) return;
  if (is_known(out.sample, work)) return take_size(out.sample.sample, work.preprocessing);
  if (work.images == EvaluationImages::decoded)
    decode_image(out.sample, work.preprocessing);
  else
    prepare_image(out.sample, work.preprocessing);
  out.claim.set(working_bytes(out.sample.sample) + (out.sample.pixels.defined() ? out.sample.pixels.numel() : 0));
}

}  // namespace

void decode_image(EvaluationSample& sample, const Decoding& decoding) {
  Sample& read = sample.sample;
  sample.image = image_fingerprint(read);
  read.image = take_image(read, decoding);
  const auto pixels = static_cast<std::size_t>(read.image.height * read.image.width);
  const auto check = [&](const auto& values, const std::string& what) {
    if (!values.empty() && values.size() != pixels)
      throw SampleError("bad_" + what, concat("sample ", read.key, ": its ", what, " has ", values.size(),
                                              " pixels, its image ", pixels));
  };
  check(read.mask, "mask");
  check(read.depth, "depth");
}

void prepare_image(EvaluationSample& sample, const Preprocessing& preprocessing) {
  decode_image(sample, preprocessing);
  const Sample& read = sample.sample;
  sample.pixels = to_tensor(preprocess(read.image, preprocessing));
  if (!read.mask.empty()) sample.mask = preprocess_mask(read.mask, read.image.height, read.image.width, preprocessing);
  if (!read.depth.empty())
    sample.depth = preprocess_depth(read.depth, read.image.height, read.image.width, preprocessing);
}

struct ImageShare::Impl {
  SamplePass<Outcome> pass;
};

ImageShare::ImageShare(const std::shared_ptr<const Source>& source, const Preprocessing& preprocessing, std::vector<std::int64_t> indices,
                       std::int64_t threads)
    : indices_(std::move(indices)) {
  const auto count = std::ssize(indices_);
  if (count == 0) return;
  const ImageWork work{preprocessing, EvaluationImages::prepared, {}};
  impl_.reset(new Impl{{{.source = source,
                         .count = count,
                         .threads = std::min<std::int64_t>(threads, count),
                         .ahead = count,
                         .place = [places = indices_](std::int64_t number) { return places[static_cast<std::size_t>(number)]; }},
                        [work](Sample& sample, std::int64_t index, Outcome& out) { process(sample, index, work, out); }}});
}

ImageShare::~ImageShare() = default;

std::vector<ImageShare::Image> ImageShare::take() {
  std::vector<Image> out;
  for (std::size_t i = 0; i < indices_.size(); ++i) {
    Outcome outcome = impl_->pass.next();
    out.push_back({.pixels = outcome.sample.pixels,
                   .mask = std::move(outcome.sample.mask),
                   .depth = std::move(outcome.sample.depth),
                   .bad_reason = outcome.bad_reason,
                   .text = outcome.bad_text});
  }
  return out;
}

struct EvaluationReader::Impl {
  std::string described;
  std::int64_t batch_size;
  std::int64_t count;
  std::int64_t taken = 0;
  LoaderStatistics statistics;
  SkipLog skips;
  SamplePass<Outcome> pass;

  Impl(const std::shared_ptr<const Source>& source, const ImageWork& work, std::int64_t given_batch_size, std::int64_t threads,
       std::int64_t max_samples, std::shared_ptr<ReportedSamples> reported)
      : described(source->describe()),
        batch_size(given_batch_size),
        count(max_samples < 0 ? source->size() : std::min(max_samples, source->size())),
        skips(described, std::move(reported)),
        pass({.source = source,
              .count = count,
              .threads = threads,
              .ahead = std::clamp<std::int64_t>(batch_size, 2 * threads, std::max(kMostAhead, 2 * threads)),
              .budget = std::make_shared<MemoryBudget>(kMostBytes)},
             [work](Sample& sample, std::int64_t index, Outcome& out) { process(sample, index, work, out); }) {}
};

EvaluationReader::EvaluationReader(std::shared_ptr<const Source> source, const Preprocessing& preprocessing,
                                   std::int64_t batch_size, std::int64_t threads, std::int64_t max_samples,
                                   EvaluationImages images, IsKnownImage is_known,
                                   std::shared_ptr<ReportedSamples> reported)
    : impl_(std::make_unique<Impl>(source, ImageWork{preprocessing, images, std::move(is_known)}, batch_size,
                                   threads, max_samples, std::move(reported))) {}

EvaluationReader::~EvaluationReader() = default;

std::vector<EvaluationSample> EvaluationReader::next() {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  std::vector<EvaluationSample> out;
  while (impl_->taken < impl_->count && static_cast<std::int64_t>(out.size()) < impl_->batch_size) {
    Outcome outcome = impl_->pass.next();
    ++impl_->taken;
    if (outcome.good())
      out.push_back(std::move(outcome.sample));
    else
      impl_->skips.note(outcome.bad_reason, outcome.bad_text);
  }
  impl_->statistics.wait_seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  impl_->statistics.samples += static_cast<std::int64_t>(out.size());
  impl_->statistics.skipped = impl_->skips.counts();
  if (out.empty()) end();
  return out;
}

void EvaluationReader::end() const {
  if (impl_->taken == impl_->count && impl_->statistics.samples == 0 && impl_->skips.total() > 0)
    user_error(impl_->described, ": no sample can be read (", describe_counts(impl_->skips.counts()),
               "); the first: ", impl_->skips.first());
}

void EvaluationReader::reject(const std::string& reason, const std::string& text) {
  impl_->skips.note(reason, text);
  --impl_->statistics.samples;
  impl_->statistics.skipped = impl_->skips.counts();
}

LoaderStatistics EvaluationReader::statistics() const {
  return impl_->statistics;
}

}  // namespace tessera

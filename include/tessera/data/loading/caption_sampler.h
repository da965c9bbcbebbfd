#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <tessera/config/fields.h>
#include <tessera/sample.h>

namespace tessera {

/// Settings for one group among an image's K captions. All captions of the group are made from the image's sentences in the same way.
struct CaptionSlots {
  std::int64_t count = 1;
  std::int64_t min_sentences = 1;
  std::int64_t max_sentences = 1;
  double consecutive = 0.5;
  bool distinct = false;
  std::optional<std::vector<std::string>> fields;
  bool whole = false;
};

template <class Visitor>
void fields(Visitor& v, CaptionSlots& s) {
  v("count", s.count, "number of captions made this way", config::in_range(1, config::kMostCount));
  v("min_sentences", s.min_sentences, "minimum number of sentences in a caption", config::at_least(1));
  v("max_sentences", s.max_sentences, "maximum number of sentences in a caption; fewer if the image has fewer", config::at_least(1));
  v("consecutive", s.consecutive,
    "probability that a caption consists of consecutive sentences; otherwise they are drawn one by one, without repetition",
    config::in_range(0, 1));
  v("distinct", s.distinct, "no two of these captions start at the same sentence until every sentence has started a caption");
  v("fields", s.fields, "text fields that supply the sentences, in order; null: the `fields` setting next to `slots`");
  v("whole", s.whole, "use the whole text of the first of `fields` that the sample has as the caption; no sentences are drawn");
}

std::optional<config::Problem> validate(const CaptionSlots& slots);

struct CaptionSamplerSettings {
  std::optional<std::vector<std::string>> fields;
  std::vector<CaptionSlots> slots;
};

template <class Visitor>
void fields(Visitor& v, CaptionSamplerSettings& s) {
  v("fields", s.fields, "text fields that supply the sentences, in order; null: all that a sample has");
  v("slots", s.slots,
    "[{count: 8, max_sentences: 3}, ...]: each entry makes `count` captions of min_sentences to max_sentences sentences, "
    "a share `consecutive` of them from consecutive sentences");
}

/// Draws K captions for an image from its sentences. With suitable settings, it draws them as FLAIR (arXiv 2412.03561), DreamLIP
/// (2403.17007) or COSMOS (2412.01814) does. The text fields supply the sentences, in order: a list supplies its nonempty entries, and a
/// single text is split (caption_sentences). A caption may start at any sentence, and no caption contains a sentence twice. Thread-safe.
class CaptionSampler {
 public:
  explicit CaptionSampler(CaptionSamplerSettings settings) : settings_(std::move(settings)) {}

  /// Returns K, the number of captions per image.
  std::int64_t count() const;
  /// Returns the K captions. A caption is empty, and counts as absent, if the image has no sentences for it. Each call of `draw` returns
  /// the next random number in [0, 1). The number of these calls depends only on the settings, the texts and the numbers drawn.
  std::vector<std::string> sample(const std::vector<TextField>& texts, const std::function<double()>& draw) const;

 private:
  CaptionSamplerSettings settings_;
};

}  // namespace tessera

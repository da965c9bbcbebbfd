#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <tessera/config/fields.h>
#include <tessera/data/sample.h>

namespace tessera {

/// How some of an image's K captions are made of its sentences.
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
  v("count", s.count, "captions made in this way", config::in_range(1, 1000));
  v("min_sentences", s.min_sentences, "fewest sentences of a caption", config::at_least(1));
  v("max_sentences", s.max_sentences, "most sentences of a caption; fewer where the image has fewer", config::at_least(1));
  v("consecutive", s.consecutive,
    "probability that the sentences of a caption follow each other; else they are drawn one by one, each at most once",
    config::in_range(0, 1));
  v("distinct", s.distinct, "the runs of these captions begin at different sentences until each has begun one");
  v("fields", s.fields, "names of the text fields that give the sentences, in order; null: the setting beside slots");
  v("whole", s.whole, "the first of the fields that is there, unsplit; nothing is drawn");
}

std::optional<config::Problem> validate(const CaptionSlots& slots);

struct CaptionSamplerSettings {
  std::optional<std::vector<std::string>> fields;
  std::vector<CaptionSlots> slots;
};

template <class Visitor>
void fields(Visitor& v, CaptionSamplerSettings& s) {
  v("fields", s.fields, "names of the text fields that give the sentences, in order; null: all that a sample has");
  v("slots", s.slots,
    "[{count: 8, max_sentences: 3}, ...]: each entry makes `count` captions of min_sentences to max_sentences sentences, "
    "a share `consecutive` of them of sentences that follow each other");
}

/// Draws K captions of an image out of its sentences, as FLAIR (arXiv 2412.03561), DreamLIP (2403.17007) and COSMOS
/// (2412.01814) do, each by its settings. Sentences are those of the fields in their order: the entries of a list that are
/// not empty, and the pieces of a text (caption_sentences). Every start of a run is possible, and no caption holds a
/// sentence twice. Thread-safe.
class CaptionSampler {
 public:
  explicit CaptionSampler(CaptionSamplerSettings settings) : settings_(std::move(settings)) {}

  /// K.
  std::int64_t count() const;
  /// The captions, K of them; an empty one is absent: its image has no sentence for it. `draw` gives the next number of a
  /// stream in [0, 1); how many are taken follows from settings, texts and numbers alone.
  std::vector<std::string> sample(const std::vector<TextField>& texts, const std::function<double()>& draw) const;

 private:
  CaptionSamplerSettings settings_;
};

}  // namespace tessera

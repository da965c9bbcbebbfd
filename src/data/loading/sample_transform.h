#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/data/image/image_views.h"
#include "src/data/loading/caption_chooser.h"
#include "src/data/loading/memory_budget.h"
#include <tessera/data/loading/loader.h>
#include <tessera/data/mixing.h>

namespace tessera {

/// A sample's part of a view of several texts.
struct PreparedTexts {
  std::vector<std::vector<std::int64_t>> ids;  // of each, none of one that is absent
  std::vector<bool> cut;                       // whether the tokenizer's context cut it
};

/// Left, top, right, bottom as shares of the view's size; nothing: the box is masked.
using PreparedBox = std::optional<std::array<float, 4>>;

/// A training sample after decoding, augmentation and tokenizing; or why there is none. A view that it lacks is absent.
struct PreparedSample {
  std::string key;
  std::map<std::string, std::vector<std::uint8_t>> pixels;  // [3, h, w] of each view of pixels
  std::map<std::string, std::vector<std::int64_t>> ids;     // of each text view of one text
  std::map<std::string, PreparedTexts> several;             // of each text view of several texts
  std::map<std::string, std::vector<PreparedBox>> boxes;    // of each view of pixels whose boxes are asked for
  std::map<std::string, TextCuts> cuts;                     // of each text view
  std::vector<std::uint8_t> features;                       // in place of pixels (FeatureFolder::read); empty: none
  std::vector<float> regions;                               // [R, F] of the views of regions; empty: none
  std::int64_t region_width = 0;                            // F
  std::int64_t label = -1;
  std::int64_t image_group = 0;  // as DuplicateGroups', if they are needed
  std::int64_t caption_group = 0;
  std::vector<std::int64_t> captions_group;  // of each of the view `captions`; 0 of one that is absent
  std::string bad_reason;  // empty: good
  std::string bad_text;
  std::vector<std::string> found;  // of a bad one, the fields that it has
  MemoryBudget::Claim claim;

  bool good() const { return bad_reason.empty(); }
  void reject(const SampleError& error);
  /// What it takes in memory.
  std::int64_t bytes() const;
};

/// What decides a sample's random choices.
struct SampleDraw {
  std::int64_t index = 0;
  std::int64_t repeat = 0;
  std::int64_t caption = -1;  // -1: as caption_choice says; else this one
};

/// Text views that a sample can give: caption, summary, objects, and those of several texts.
const std::vector<std::string>& known_texts();

/// "found image and label; needed image and caption. Check ...": `found` in samples of this component of a source;
/// empty: none of them could be read.
std::string describe_fields(const std::set<std::string>& found, const std::vector<std::string>& needed,
                            const SourceComponent& component);

/// Fields that a sample must have: those of the views that are not optional.
std::vector<std::string> needed_fields(const Needs& needs);

/// Turns samples of a source into what a batch is made of. A sample that lacks an optional view is made without it; one
/// that lacks another view is bad, and so is one whose picture, text, boxes or region features are damaged, whose region
/// features have another width than the target's region_width (0: any will do), or of whose picture the target's features
/// have none, optional or not: damage is counted, and never taken for absence. Thread-safe; every random choice follows
/// from (seed, draw).
class SampleTransform {
 public:
  /// Throws UserError: a view that this loader cannot make, or that features cannot stand for; a source none of whose
  /// samples has a field that is needed, or features.
  SampleTransform(std::shared_ptr<const Source> source, std::shared_ptr<const Tokenizer> tokenizer,
                  const Preprocessing& preprocessing, const LoaderSettings& settings, const Needs& needs,
                  std::uint64_t seed, const LoaderTarget& target = {});

  PreparedSample prepare(Sample sample, const SampleDraw& draw) const;

 private:
  void check_views() const;
  bool wants_phrases() const;
  void check_fields() const;
  void check_fields(const SourceComponent& component) const;
  std::vector<std::string> fields_of(const Sample& sample) const;
  std::string missing_field(const Sample& sample) const;
  bool lacks_features(const Sample& sample) const;
  void prepare_texts(const Sample& sample, const SampleDraw& draw, PreparedSample& out) const;
  void prepare_captions(const Sample& sample, const SampleDraw& draw, bool optional, PreparedSample& out) const;
  void prepare_negatives(const Sample& sample, const SampleDraw& draw, PreparedSample& out) const;
  void prepare_phrases(const Sample& sample, const SampleDraw& draw, PreparedSample& out) const;
  PreparedTexts encode_several(const std::string& view, const std::vector<std::string>& texts,
                               PreparedSample& out) const;
  std::vector<std::int64_t> encode(const std::string& view, const std::string& text, PreparedSample& out) const;
  void prepare_images(Sample& sample, const SampleDraw& draw, PreparedSample& out) const;
  const std::string* choose_text(const std::string& view, const Sample& sample, const SampleDraw& draw) const;

  ImageViews images_;
  std::optional<CaptionChooser> captions_;  // null: there is no such view
  std::vector<std::int64_t> no_text_;       // ids of an empty text
  std::shared_ptr<const Source> source_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  LoaderSettings settings_;
  Needs needs_;
  std::uint64_t seed_;
  std::int64_t region_width_;
  std::shared_ptr<const FeatureFolder> features_;  // null: pictures are decoded
};

}  // namespace tessera

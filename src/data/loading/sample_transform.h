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

/// A sample's part of a multi-text view.
struct PreparedTexts {
  std::vector<std::vector<std::int64_t>> ids;  // token ids of each text; empty if the text is absent
  std::vector<bool> cut;                       // whether the tokenizer's context cut the text
};

/// A box's left, top, right and bottom edges as shares of the view's size; nullopt if the box is masked.
using PreparedBox = std::optional<std::array<float, 4>>;

/// A training sample after decoding, augmentation and tokenization, or the reason why it is bad. The keys of the maps are names of views.
/// Views that the sample lacks have no entry.
struct PreparedSample {
  std::string key;
  std::map<std::string, ViewImage> pixels;                   // image of each pixel view
  std::map<std::string, std::vector<std::int64_t>> ids;      // token ids of each single-text view
  std::map<std::string, PreparedTexts> several;              // texts of each multi-text view
  std::map<std::string, std::vector<PreparedBox>> boxes;     // boxes of each pixel view that needs boxes
  std::map<std::string, TextCuts> cuts;                     // how much of each text view was cut off
  std::vector<std::uint8_t> features;                       // stored features, used instead of pixels; empty if there are none
  std::vector<float> regions;                               // [R, F] region features of the region views; empty if there are none
  std::int64_t region_width = 0;                            // F
  std::int64_t label = -1;
  std::int64_t image_group = 0;    // equal for samples with the same image (DuplicateGroups); set only if Needs::duplicates is true
  std::int64_t caption_group = 0;  // equal for samples with the same caption; set only if Needs::duplicates is true
  std::vector<std::int64_t> captions_group;  // group of each text of the view `captions`; 0 if the text is absent
  std::string bad_reason;  // empty if the sample is good
  std::string bad_text;
  std::vector<std::string> found;  // names of the fields that the sample has, for messages; empty if the sample is good
  MemoryBudget::Claim claim;

  bool good() const { return bad_reason.empty(); }
  void reject(const SampleError& error);
  /// Returns the number of bytes that the sample takes in memory.
  std::int64_t bytes() const;
};

/// The inputs to a sample's random choices.
struct SampleDraw {
  std::int64_t index = 0;
  std::int64_t repeat = 0;
  std::int64_t caption = -1;  // index of the caption to use; -1: chosen by caption_choice
  std::int64_t max_patches = 0;  // has the same meaning as in ImageViews::make()
};

/// Returns the names of all text views: caption, summary, objects, and the multi-text views.
const std::vector<std::string>& known_texts();

/// Returns a text such as "found image and label; needed image and caption. Check ...". `found` lists the fields of the component's
/// samples; it is empty if none of the samples could be read.
std::string describe_fields(const std::set<std::string>& found, const std::vector<std::string>& needed,
                            const SourceComponent& component);

/// Returns the fields that a sample must have, which are those of all views that are not optional.
std::vector<std::string> needed_fields(const Needs& needs);

/// Decodes, augments and tokenizes samples of a source for batches. A sample that lacks an optional view is prepared without it. A sample
/// is bad if it lacks a view that is not optional, if its image, text, boxes or region features are damaged, if its region features do not
/// have the width target.region_width (0: any width), or if it has an image but no entry in target.features. The last three conditions
/// also apply to optional views, so that damage is counted and never treated as absence. Thread-safe. Every random choice is a function of
/// (seed, draw).
class SampleTransform {
 public:
  /// Throws UserError in three cases: this loader cannot make a view, target.features is set but cannot replace the image views, or none
  /// of the checked samples of some component has all needed fields and features.
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
  std::optional<CaptionChooser> captions_;  // null: there is no view `captions`
  std::vector<std::int64_t> no_text_;       // token ids of an empty text
  std::shared_ptr<const Source> source_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  LoaderSettings settings_;
  Needs needs_;
  std::uint64_t seed_;
  std::int64_t region_width_;
  std::shared_ptr<const FeatureFolder> features_;  // null: images are decoded
};

}  // namespace tessera

#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/data/image/image_views.h"
#include "src/data/loading/sample_reader.h"
#include "src/data/loading/text_views.h"
#include <tessera/data/loading/loader.h>
#include <tessera/data/mixing.h>

namespace tessera {

struct FeatureManifest;

/// A sample's part of a text view.
struct PreparedTexts {
  std::vector<std::vector<std::int64_t>> ids;  // token ids of each text; empty if the text is absent
  std::vector<bool> cut;                       // whether the tokenizer's context cut the text
  std::vector<std::string> chosen;             // the texts themselves; only if vectors of texts are stored
};

/// A box's left, top, right and bottom edges as shares of the view's size; nullopt if the box is masked.
using PreparedBox = std::optional<std::array<float, 4>>;

/// A training sample after decoding, augmentation and tokenization, or the reason why it is bad. The keys of the maps are names of views.
/// Views that the sample lacks have no entry.
struct PreparedSample : SampleOutcome {
  std::map<std::string, ViewImage> pixels;                   // image of each pixel view
  std::map<std::string, PreparedTexts> texts;                // texts of each text view: one, or as many as the view has per image
  std::map<std::string, std::vector<PreparedBox>> boxes;     // boxes of each pixel view that needs boxes
  std::map<std::string, TextCuts> cuts;                     // how much of each text view was cut off
  std::map<std::string, std::vector<std::uint8_t>> taught;  // stored embeddings of teachers for each view, those of its texts one by one
  std::map<std::string, std::vector<std::uint8_t>> text_features;  // stored vectors of each text view, one by one; empty if there are none
  std::vector<std::uint8_t> features;                       // stored features, used instead of pixels; empty if there are none
  std::vector<float> regions;                               // [R, F] region features of the region views; empty if there are none
  std::int64_t region_width = 0;                            // F
  std::int64_t label = -1;
  std::int64_t image_group = 0;    // equal for samples with the same image (DuplicateGroups); set only if Needs::duplicates is true
  std::int64_t caption_group = 0;  // equal for samples with the same caption; set only if Needs::duplicates is true
  std::vector<std::int64_t> captions_group;  // group of each text of the view `captions`; 0 if the text is absent
  std::map<std::string, at::Tensor> extras;  // the sample's tensors of Needs::extras
  std::vector<std::string> found;  // names of the fields that the sample has, for messages; empty if the sample is good
  std::int64_t component = 0;      // component of the source that the sample comes from
  bool left_out = false;           // whether concept balance does not use the sample in this epoch

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

/// Returns the draw of crop number `crop` of the sample's image, for which embeddings of teachers are stored. Unlike other draws, it does
/// not depend on the sample's place in its source.
SampleDraw draw_of_crop(const Sample& sample, const SampleDraw& draw, std::int64_t crop);

/// Returns the fields that a sample must have, which are those of all views that are not optional.
std::vector<std::string> needed_fields(const Needs& needs);

/// Decodes, augments and tokenizes samples of a source for batches. A sample that lacks an optional view is prepared without it. A sample
/// is bad if it lacks a view that is not optional, if its image, text, boxes or region features are damaged, if its region features do not
/// have the width target.region_width (0: any width), or if it has an image but no entry in target.features. The last three conditions
/// also apply to optional views, so that damage is counted and never treated as absence. Thread-safe. Every random choice is a function of
/// (seed, draw).
class SampleTransform {
 public:
  /// Throws UserError if this loader cannot make a view, or if target.features is set but cannot replace the image views.
  SampleTransform(std::shared_ptr<const Tokenizer> tokenizer, const Preprocessing& preprocessing, const LoaderSettings& settings,
                  const Needs& needs, std::uint64_t seed, const LoaderTarget& target = {});

  PreparedSample prepare(Sample sample, const SampleDraw& draw) const;

  /// Returns the names of all fields that the sample has, for messages.
  std::vector<std::string> fields_of(const Sample& sample) const;
  /// Returns the first needed field that the sample lacks; empty if it has all.
  std::string missing_field(const Sample& sample) const;
  /// Returns whether the sample has an image, but no entry in target.features.
  bool lacks_features(const Sample& sample) const;
  const Needs& needs() const { return needs_; }
  const FeatureFolder* features() const { return features_.get(); }
  /// Returns a text view by its name, or null.
  const TextView* find_view(const std::string& name) const;

 private:
  void check_views() const;
  bool wants_boxes() const;
  void prepare_text(const std::string& name, const Sample& sample, const TextDraw& draw, PreparedSample& out) const;
  RegionTexts choose_regions(const Sample& sample, const SampleDraw& draw, PreparedSample& out) const;
  TextCuts encode(const std::string& text, std::vector<std::int64_t>& ids) const;
  void prepare_images(Sample& sample, const SampleDraw& draw, PreparedSample& out) const;
  SampleDraw draw_of_image(const Sample& sample, const SampleDraw& draw) const;
  static std::vector<std::uint8_t> rows_of_texts(const PreparedTexts& texts, const FeatureManifest& manifest,
                                                 const std::function<std::vector<std::uint8_t>(const std::string& text)>& row_of);
  void add_taught(const Sample& sample, const SampleDraw& draw, std::uint64_t image, PreparedSample& out) const;

  ImageViews images_;
  std::vector<std::int64_t> no_text_;  // token ids of an empty text
  std::shared_ptr<const Tokenizer> tokenizer_;
  LoaderSettings settings_;
  Needs needs_;
  std::string compared_;  // the text view that DuplicateGroups::caption_group compares
  std::uint64_t seed_;
  std::int64_t region_width_;
  std::shared_ptr<const FeatureFolder> features_;  // null: images are decoded
  std::shared_ptr<const FeatureFolder> text_features_;  // null: there are no stored vectors of texts
  std::shared_ptr<const TaughtFolder> teachers_;   // null: there are no stored embeddings of teachers
  std::vector<TextView> texts_;
};

/// Reads samples of every component of a source and throws UserError if none of a component's has all fields and features that the
/// transform needs: better now than after minutes of skipped samples.
void check_fields(const std::shared_ptr<const Source>& source, const std::shared_ptr<const SampleTransform>& transform,
                  const LoaderSettings& settings);

/// Returns a text such as "found image and label; needed image and caption. Check ...". `found` lists the fields of the component's
/// samples; it is empty if none of the samples could be read.
std::string describe_fields(const std::set<std::string>& found, const std::vector<std::string>& needed,
                            const SourceComponent& component);

}  // namespace tessera

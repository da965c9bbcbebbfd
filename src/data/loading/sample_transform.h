#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "src/data/loading/sampler.h"
#include "src/data/image/image_views.h"
#include "src/data/loading/memory_budget.h"
#include <tessera/data/loading/loader.h>

namespace tessera {

/// A training sample after decoding, augmentation and tokenizing; or why there is none.
struct PreparedSample {
  std::string key;
  // Of each view of Needs, by name; one that the sample lacks is absent.
  std::map<std::string, std::vector<std::uint8_t>> pixels;  // [3, h, w]
  std::map<std::string, std::vector<std::int64_t>> ids;
  std::vector<float> regions;                     // [R, F]
  std::int64_t region_width = 0;
  std::int64_t label = -1;
  std::int64_t image_group = 0;  // as Batch::image_group, if they are needed
  std::int64_t caption_group = 0;
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

/// "found image and label; needed image and caption. Check ...": `found` in samples of this part of a source; empty:
/// none of them could be read.
std::string describe_fields(const std::set<std::string>& found, const std::vector<std::string>& needed,
                            const SourceComponent& part);

/// Fields that a sample must have: those of the views that are not optional.
std::vector<std::string> needed_fields(const Needs& needs);

/// Turns samples of a source into what a batch is made of. Thread-safe; every random choice follows from (seed, draw);
/// a source that gives each sample once an epoch has the epoch as its round.
class SampleTransform {
 public:
  /// Throws UserError: a view that this loader cannot make, or a source none of whose samples has a field that is
  /// needed.
  SampleTransform(std::shared_ptr<const Source> source, std::shared_ptr<const Tokenizer> tokenizer,
                 const Preprocessing& preprocessing, const LoaderSettings& settings, const Needs& needs,
                 std::uint64_t seed);

  PreparedSample prepare(Sample sample, const SampleDraw& draw) const;

 private:
  void check_views() const;
  void check_fields() const;
  void check_fields(const SourceComponent& part) const;
  std::string missing_field(const Sample& sample) const;
  void prepare_fields(Sample& sample, const SampleDraw& draw, PreparedSample& out) const;
  void prepare_text(const std::string& view, const Sample& sample, const SampleDraw& draw, PreparedSample& out) const;
  const std::string& choose_text(const std::string& view, const Sample& sample, const SampleDraw& draw) const;

  ImageViews images_;
  std::shared_ptr<const Source> source_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  LoaderSettings settings_;
  Needs needs_;
  std::uint64_t seed_;
};

/// The picture of a sample, decoded if it is not yet. Throws SampleError naming the key.
Image take_image(Sample& sample);

}  // namespace tessera

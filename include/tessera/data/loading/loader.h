#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tessera/batch.h>
#include <tessera/data/features/feature_folder.h>
#include <tessera/data/image/image_settings.h>
#include <tessera/data/loading/caption_view.h>
#include <tessera/data/loading/region_views.h>
#include <tessera/data/loading/resolution.h>
#include <tessera/data/loading/told_samples.h>
#include <tessera/data/position.h>
#include <tessera/data/sample.h>
#include <tessera/data/source.h>
#include <tessera/data/tokenizers/tokenizer.h>
#include <tessera/preprocessing.h>

namespace tessera {

struct LoaderSettings : ImageSettings {
  std::int64_t batch_size = 64;
  std::int64_t threads = 2;
  std::int64_t prefetch = 4;        // batches
  std::int64_t prefetch_mb = 2048;  // MiB
  bool shuffle = true;
  std::string caption_choice = "random";
  std::optional<CaptionViewSettings> captions;
  std::optional<NegativeViewSettings> negatives;
  std::optional<BoxViewSettings> boxes;
  std::int64_t max_regions = 0;
  std::vector<ResolutionStep> resolution;
  double max_bad_share = 0.1;
  std::int64_t max_bad_run = 1000;
  std::int64_t skipped_list = 10'000;
  std::int64_t retries = 3;
  double retry_seconds = 1;
  std::string on_failure = "stop";
  double warn_after = 60;
  double timeout = 500;
};

template <class Visitor>
void fields(Visitor& v, LoaderSettings& s) {
  v("batch_size", s.batch_size, "samples per step and process", config::at_least(1));
  v("threads", s.threads, "decoding threads; affects only speed", config::in_range(1, config::kMostThreads));
  v("prefetch", s.prefetch, "batches kept ready", config::at_least(1));
  v("prefetch_mb", s.prefetch_mb,
    "maximum MiB in total for samples being prepared and batches kept ready; one image and one batch are always allowed",
    config::at_least(1));
  v("shuffle", s.shuffle, "draw a new permutation of all samples in each epoch");
  v("caption_choice", s.caption_choice,
    "which of several captions a sample is trained with; all: each of them in every epoch, as a sample of its own",
    config::one_of({"random", "first", "all"}));
  v("captions", s.captions,
    "the view `captions`, K captions per image, for objectives that need it (docs/data.md): {slots: [{count: 8, "
    "max_sentences: 3}]} draws them from the sentences of the data's text fields, {choice: all or random, count: 5} takes "
    "captions as they are; null: no such view");
  v("negatives", s.negatives,
    "the view `negatives`, {count: H} texts per image that almost describe it, for objectives that need it "
    "(docs/data.md); null: no such view");
  v("boxes", s.boxes,
    "boxes of objects in image views, and the views `phrases` and `phrase_negatives` of their texts, for objectives that "
    "need them (docs/data.md): {count: R, negatives: H}; null: none");
  v("max_regions", s.max_regions,
    "maximum number of region features per sample; the first ones are used, because detectors write the most confident first; 0: all",
    config::at_least(0));
  v("resolution", s.resolution,
    "for images that keep their shapes (model.preprocessing.resize_mode: naflex), the maximum number of patches per image in parts "
    "of the run, as in [{until: 0.8, max_patches: 128}]; model.preprocessing.max_patches applies after the last part and in evaluation");
  v("max_bad_share", s.max_bad_share, "stop when more than this share of the samples is unreadable (after 100 samples)",
    config::in_range(0, 1));
  v("max_bad_run", s.max_bad_run, "stop when this many samples in a row are unreadable", config::at_least(1));
  v("skipped_list", s.skipped_list,
    "maximum number of unreadable samples to list in the run's skipped.jsonl; further ones are only counted", config::at_least(0));
  v("retries", s.retries, "how often a sample is read again when its source fails (a disk, a network, a command)",
    config::at_least(0));
  v("retry_seconds", s.retry_seconds, "seconds to wait before the first retry; doubled for each further retry",
    config::at_least(0));
  v("on_failure", s.on_failure, "after the last retry: stop the run, or skip the sample and count it as io_error",
    config::one_of({"stop", "skip"}));
  v("warn_after", s.warn_after,
    "seconds of waiting for one sample after which the log says which sample it is and what its thread is doing",
    config::above(0));
  v("timeout", s.timeout,
    "seconds of waiting for one sample after which the run stops, 0: never; keep it below distributed.timeout, so that the "
    "waiting process can report what it waits for",
    config::at_least(0));
  fields(v, static_cast<ImageSettings&>(s));
}

/// Counts of a view's texts and token ids. A text that exceeds the tokenizer's context is cut and loses token ids.
struct TextCuts {
  std::int64_t texts = 0;
  std::int64_t cut_texts = 0;   // number of texts that were cut
  std::int64_t tokens = 0;      // number of token ids before cutting, including special tokens
  std::int64_t cut_tokens = 0;  // number of token ids that were cut off

  TextCuts& operator+=(const TextCuts& more);
  TextCuts operator-(const TextCuts& before) const;
};

struct LoaderStatistics {
  std::int64_t samples = 0;                        // delivered samples
  std::map<std::string, TextCuts> cuts;            // counts of cut texts in the delivered samples, keyed by text view
  std::map<std::string, std::int64_t> skipped;     // number of skipped samples, keyed by reason
  double wait_seconds = 0;                         // time that next() spent waiting
  double work_seconds = 0;                         // time spent on samples, summed over the decoding threads
  double cpu_seconds = 0;                          // the part of work_seconds that was CPU time
  std::int64_t retries = 0;                        // number of reads that were repeated after a failure of the source
  std::int64_t peak_bytes = 0;                     // peak memory of samples being prepared and batches kept ready
};

/// What a loader is told in addition to its settings: facts about the run and the model, and how to report skipped samples.
struct LoaderTarget {
  bool pinned = false;       // put tensors in page-locked memory, from which a GPU copies asynchronously; requires a GPU
  std::string skipped_file;  // output file with one JSON object per skipped sample, each on its own line; empty: no file
  // width of the model's region features; samples whose region features have another width are skipped; 0: any width
  std::int64_t region_width = 0;
  bool whole_texts = false;  // pad texts to the tokenizer's context, not just to the longest text of the batch
  // precomputed features to use instead of the images (data.features); null: images are decoded
  std::shared_ptr<const FeatureFolder> features;
  std::int64_t batches_of_run = 0;  // number of batches in the run; if it is 0 (unknown), `resolution` is ignored
  // error messages that suggest a larger max_bad_share write this text in front of the suggested value
  std::string share_setting = "data.loader.max_bad_share: ";
  std::shared_ptr<ToldSamples> told;              // the skipped samples that the log has already reported; null: none
};

/// An endless sequence of training batches. Each epoch is a permutation of the samples; threads decode and collate them. The batches are a
/// function of (seed, source, settings) only; the number of threads does not change them. A corrupt sample is skipped and counted, and the
/// next sample in the order takes its place; the same happens to a sample that lacks a view, unless the view is optional (ViewNeeds).
/// Samples at the end of an epoch that do not fill a batch are left out. With several ranks, each sample of an epoch belongs to one rank.
/// If the number of samples is not a multiple of the number of ranks, the remainder of the samples is left out. Which samples these are
/// changes from epoch to epoch. Ranks that skip corrupt samples may end an epoch earlier than others, so epoch() may differ between ranks.
/// With caption_choice `all`, each caption of a sample makes a sample of its own.
///
/// For a mixture with mode `sequential` each batch comes from one component, and the rules for the end of an epoch apply to the end of each
/// component. With `accumulate` the loader returns one batch of each component in turn. These batches share one cursor: if one component
/// skips corrupt samples, the others leave out the same number of samples.
class Loader {
 public:
  /// tokenizer may be null if needs.texts is empty. Throws UserError if the source (or a component of a mixture) holds less
  /// than one batch, or lacks a field that `needs` asks for.
  Loader(std::shared_ptr<const Source> source, std::shared_ptr<const Tokenizer> tokenizer,
         const Preprocessing& preprocessing, const LoaderSettings& settings, const Needs& needs, std::uint64_t seed,
         const RankSlice& slice = {}, const LoaderTarget& target = {});
  ~Loader();

  /// Returns the next batch. Throws UserError if the source fails, a sample times out or too many samples are bad; further
  /// calls throw the same error.
  Batch next();
  /// Returns the epoch of the last batch that next() returned or, after seek(), of the batch before the position.
  std::int64_t epoch() const;
  /// Returns the segment number of the last batch that next() returned. A segment is an epoch or, with a sequential mixture, one component
  /// within an epoch; the numbers continue from epoch to epoch. Ranks in the same segment have batches of the same component.
  std::int64_t segment() const;
  /// Returns the component label of the last batch that next() returned; empty if that batch mixes all components.
  std::string source_label() const;
  /// Returns the number of batches whose gradients an update must sum: one, or one per component of a mixture with mode
  /// accumulate.
  std::int64_t batches_per_update() const;
  /// Returns the position of the batch that next() will return.
  DataPosition position() const;
  /// Continues from a position. The position may come from another rank or from a run with another number of ranks. In both cases, this
  /// rank reads its own samples that come after the position.
  void seek(const DataPosition& position);
  std::int64_t batches_per_epoch() const;
  LoaderStatistics statistics() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Returns the name of the single-text view that DuplicateGroups::caption_group compares: `caption` if that view is needed, otherwise the
/// first single-text view that is needed. Empty if no single-text view is needed.
std::string compared_text(const Needs& needs);

/// Returns the number of texts per image for each multi-text view that the settings define, by the view's name.
std::map<std::string, std::int64_t> texts_per_image(const LoaderSettings& settings);

/// The length of a training epoch, in batches.
struct EpochLength {
  std::int64_t batches = 0;             // number of batches per rank, over all sources
  std::int64_t batches_per_update = 1;  // above 1 for a mixture with mode accumulate
};

/// Returns the epoch length that a Loader with these settings has on `ranks` ranks if it skips no sample.
EpochLength epoch_length(const std::shared_ptr<const Source>& source, const LoaderSettings& settings, int ranks);

/// A sample that is ready for evaluation.
struct EvaluationSample {
  std::int64_t index = 0;
  Sample sample;                    // the sample; its `image` is decoded and its `encoded` is empty
  std::uint64_t picture = 0;        // fingerprint of the image as the source returns it
  at::Tensor pixels;                // uint8 [3, h, w], after the evaluation transform
  std::vector<std::uint8_t> mask;   // mask [h, w], transformed like the pixels; empty if there is no mask
  std::vector<float> depth;         // depths [h, w], transformed like the pixels; empty if there are none
};

/// Decodes a sample's image. Throws SampleError if the image is missing or damaged, or if the mask's size differs from the
/// image's.
void decode_picture(EvaluationSample& sample, const Decoding& decoding);

/// Decodes and transforms a sample's image, and fills in `picture`, `pixels`, `mask` and `depth`. Throws SampleError if the
/// image is missing or damaged, or if the mask's size differs from the image's.
void prepare_picture(EvaluationSample& sample, const Preprocessing& preprocessing);

/// How far an EvaluationReader processes images. `prepared`: images are decoded and transformed. `decoded`: `sample` holds the image and
/// its mask at their original size. `as_read`: images are not decoded, so they may be missing or damaged; for callers that use only texts.
enum class EvaluationPictures { prepared, decoded, as_read };

/// A function that takes an image's fingerprint and returns true if the image need not be prepared. In the EvaluationSample of such an
/// image, `picture` is set, and `pixels`, `mask` and `depth` stay empty. The function is called from several threads.
using IsKnownPicture = std::function<bool(std::uint64_t picture)>;

/// Reads a source once, in order, with threads that prepare the samples; corrupt samples are skipped and counted.
class EvaluationReader {
 public:
  EvaluationReader(std::shared_ptr<const Source> source, const Preprocessing& preprocessing, std::int64_t batch_size,
                   std::int64_t threads, std::int64_t max_samples = -1,
                   EvaluationPictures pictures = EvaluationPictures::prepared, IsKnownPicture is_known = {},
                   std::shared_ptr<ToldSamples> told = nullptr);
  ~EvaluationReader();

  /// Returns the next samples, at most batch_size; empty at the end.
  std::vector<EvaluationSample> next();
  LoaderStatistics statistics() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera

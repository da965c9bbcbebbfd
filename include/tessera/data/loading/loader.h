#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
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
  v("threads", s.threads, "decoding threads; changes nothing but speed", config::at_least(1));
  v("prefetch", s.prefetch, "batches kept ready", config::at_least(1));
  v("prefetch_mb", s.prefetch_mb,
    "MiB that samples in work and batches kept ready take at most together; one picture and one batch always pass",
    config::at_least(1));
  v("shuffle", s.shuffle, "a new permutation of all samples each epoch");
  v("caption_choice", s.caption_choice, "which of several captions a sample is trained with; all: with each of them in every epoch, as a sample of its own",
    config::one_of({"random", "first", "all"}));
  v("captions", s.captions,
    "the view `captions`, K captions per image, for objectives that ask for it (docs/data.md): {slots: [{count: 8, "
    "max_sentences: 3}]} draws them from the sentences of the data's text fields, {choice: all or random, count: 5} takes "
    "captions as they are; null: there is no such view");
  v("negatives", s.negatives,
    "the view `negatives`, {count: H} texts per image that almost describe it, for objectives that ask for it "
    "(docs/data.md); null: there is no such view");
  v("boxes", s.boxes,
    "boxes of objects in image views, and the views `phrases` and `phrase_negatives` of their texts, for objectives that "
    "ask for them (docs/data.md): {count: R, negatives: H}; null: there are none");
  v("max_regions", s.max_regions,
    "region features of a sample that are used: the first ones, for detectors write the most confident first; 0: all",
    config::at_least(0));
  v("resolution", s.resolution,
    "of images that keep their shapes (model.preprocessing.resize_mode: naflex), the patches that they have at most in parts of the run, "
    "as in [{until: 0.8, max_patches: 128}]; behind the last part, and at evaluation: model.preprocessing.max_patches");
  v("max_bad_share", s.max_bad_share, "stop when more than this share of the samples is unreadable (after 100 samples)", config::in_range(0, 1));
  v("max_bad_run", s.max_bad_run, "stop when so many samples in a row are unreadable", config::at_least(1));
  v("skipped_list", s.skipped_list,
    "unreadable samples that the run's skipped.jsonl lists at most; further ones are only counted", config::at_least(0));
  v("retries", s.retries, "how often a sample is read again when its source fails (a disk, a network, a command)",
    config::at_least(0));
  v("retry_seconds", s.retry_seconds, "before the first of these attempts; twice as long before each further one",
    config::at_least(0));
  v("on_failure", s.on_failure, "after the last attempt: stop, or skip the sample, counted as io_error",
    config::one_of({"stop", "skip"}));
  v("warn_after", s.warn_after, "seconds of waiting for one sample until a line says which, and who is at it",
    config::above(0));
  v("timeout", s.timeout,
    "seconds of waiting for one sample until the run stops, 0: never; less than distributed.timeout, so that the process "
    "that waits can say for what",
    config::at_least(0));
  fields(v, static_cast<ImageSettings&>(s));
}

/// How many texts and token ids of a view there were, and how many of them the tokenizer's context cut.
struct TextCuts {
  std::int64_t texts = 0;
  std::int64_t cut_texts = 0;   // that lost ids
  std::int64_t tokens = 0;      // special ones, and those that were lost, included
  std::int64_t cut_tokens = 0;  // lost ones

  TextCuts& operator+=(const TextCuts& more);
  TextCuts operator-(const TextCuts& before) const;
};

struct LoaderStatistics {
  std::int64_t samples = 0;                        // delivered
  std::map<std::string, TextCuts> cuts;            // of these, by text view
  std::map<std::string, std::int64_t> skipped;     // by reason
  double wait_seconds = 0;                         // next() stood waiting
  double work_seconds = 0;                         // the decoding threads, all together, had samples in work
  double cpu_seconds = 0;                          // of these, they computed
  std::int64_t retries = 0;                        // attempts after a failure of the source
  std::int64_t peak_bytes = 0;                     // that samples in work and batches kept ready took at most
};

/// Where a loader's batches and messages go.
struct LoaderTarget {
  bool pinned = false;       // tensors lie in page-locked memory, from where a GPU copies without waiting; needs one
  std::string skipped_file;  // lists the samples left out, a JSON object a line; empty: none
  std::int64_t region_width = 0;  // that the model takes; samples with another are skipped; 0: any
  bool whole_texts = false;  // padded to the tokenizer's context, not just to the longest text of the batch
  std::shared_ptr<const FeatureFolder> features;  // take the pictures' place (data.features); null: pictures are decoded
  std::int64_t batches_of_run = 0;  // those of an update counted once (LoaderSettings::resolution); 0: not known, and the run has no parts
  std::string share_setting = "data.loader.max_bad_share: ";  // before a number: how the user sets it, for messages
  std::shared_ptr<ToldSamples> told;              // whom the log has named as left out; null: nobody yet
};

/// Endless batches for training: permutation of samples per epoch, decode and collate in threads. The stream of batches follows
/// from (seed, source, settings) alone; threads change nothing. A corrupt sample is skipped, counted, and its place taken by
/// the next sample of the order; so is one that lacks a view, unless that is optional (ViewNeeds). The last batch_size-1
/// or fewer samples of an epoch are left out. With several ranks each sample belongs to one of them; (size modulo their
/// number) samples of an epoch are left out beforehand, others in each epoch. Ranks that skip corrupt samples may end an
/// epoch sooner than others: see epoch(). With caption_choice `all` each caption of a sample makes a sample of its own.
///
/// Of a mixture, `sequential` gives batches of one component each, and what is said above of the end of an epoch holds for
/// that of each component. `accumulate` gives a batch of each component in turn, all from the same cursor; when one of
/// them skips corrupt samples the others leave out as many.
class Loader {
 public:
  /// tokenizer may be null when needs.texts is empty. Throws UserError when the source (of a mixture: a component) holds
  /// less than one batch, or has no field that `needs` asks for.
  Loader(std::shared_ptr<const Source> source, std::shared_ptr<const Tokenizer> tokenizer,
         const Preprocessing& preprocessing, const LoaderSettings& settings, const Needs& needs, std::uint64_t seed,
         const RankSlice& slice = {}, const LoaderTarget& target = {});
  ~Loader();

  /// Throws UserError: the source failed, a sample did not come in time, too many are bad. Throws it again when called
  /// again.
  Batch next();
  /// Epoch of the batch that next() returned last.
  std::int64_t epoch() const;
  /// Number of the segment that this batch is of: the epoch's own, or counted over the components that follow each other
  /// (mixture, sequential). Ranks whose batches are of the same segment have batches of the same component.
  std::int64_t segment() const;
  /// Label of the component that this batch is of; empty when it is of all of them.
  std::string source_label() const;
  /// Batches whose gradients an update must add up: 1, or of each component one (mixture, accumulate).
  std::int64_t batches_per_update() const;
  /// Position of the batch that next() will return.
  DataPosition position() const;
  /// A position of another rank, or of a run with another number of them, will do: reading goes on with the own samples
  /// from there.
  void seek(const DataPosition& position);
  std::int64_t batches_per_epoch() const;
  LoaderStatistics statistics() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The view of one text that DuplicateGroups::caption_group compares: `caption`, or else the first; empty: there is none.
std::string compared_text(const Needs& needs);

/// How many texts per image the views of several texts hold, by name: those that the settings make.
std::map<std::string, std::int64_t> texts_per_image(const LoaderSettings& settings);

/// How long an epoch of training is.
struct EpochLength {
  std::int64_t batches = 0;             // of each rank, all sources together
  std::int64_t batches_per_update = 1;  // that an update takes (mixture, accumulate)
};

/// That of a Loader with these settings on each of so many ranks, as long as no sample is skipped.
EpochLength epoch_length(const std::shared_ptr<const Source>& source, const LoaderSettings& settings, int ranks);

/// One sample ready for evaluation.
struct EvaluationSample {
  std::int64_t index = 0;
  Sample sample;                    // its `image` is the decoded picture, `encoded` is empty
  std::uint64_t picture = 0;        // fingerprint of the picture as the source gives it
  at::Tensor pixels;                // uint8 [3, h, w], after the evaluation transform
  std::vector<std::uint8_t> mask;   // [h, w] after the same geometry; empty without a mask
  std::vector<float> depth;         // likewise
};

/// Decodes the picture of a sample. Throws SampleError: it has none, a damaged one, or a mask of another size.
void decode_picture(EvaluationSample& sample);

/// Decodes and transforms the picture of a sample that has none of `picture`, `pixels` and `mask` yet. Throws SampleError:
/// it has no picture, a damaged one, or a mask of another size.
void prepare_picture(EvaluationSample& sample, const Preprocessing& preprocessing);

/// What an EvaluationReader makes of pictures. `decoded`: `sample` holds them and their masks at their own size. `as_read`:
/// nothing, and a sample may lack its own, or have a damaged one, for whoever looks at texts alone.
enum class EvaluationPictures { prepared, decoded, as_read };

/// Whether a picture, by its fingerprint, need not be prepared: `picture` alone of its sample is filled in. Called from several
/// threads.
using IsKnownPicture = std::function<bool(std::uint64_t picture)>;

/// One pass over a source in order, prepared by threads; corrupt samples are skipped and counted.
class EvaluationReader {
 public:
  EvaluationReader(std::shared_ptr<const Source> source, const Preprocessing& preprocessing, std::int64_t batch_size,
                   std::int64_t threads, std::int64_t max_samples = -1,
                   EvaluationPictures pictures = EvaluationPictures::prepared, IsKnownPicture is_known = {},
                   std::shared_ptr<ToldSamples> told = nullptr);
  ~EvaluationReader();

  /// The next samples, at most batch_size; empty at the end.
  std::vector<EvaluationSample> next();
  LoaderStatistics statistics() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera

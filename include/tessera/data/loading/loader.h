#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include <tessera/batch.h>
#include <tessera/data/loading/loader_settings.h>
#include <tessera/data/loading/loader_statistics.h>
#include <tessera/data/position.h>
#include <tessera/data/source.h>
#include <tessera/data/tokenizers/tokenizer.h>
#include <tessera/preprocessing.h>

namespace tessera {

class FeatureFolder;
class ReportedSamples;
class TaughtFolder;

/// What a loader needs in addition to its settings: facts about the run and the model, and how to report skipped samples.
struct LoaderTarget {
  bool pinned = false;       // put tensors in page-locked memory, from which a GPU copies asynchronously; requires a GPU
  std::string skipped_file;  // output file with one JSON object per skipped sample, each on its own line; empty: no file
  // width of the model's region features; samples whose region features have another width are skipped; 0: any width
  std::int64_t region_width = 0;
  bool whole_texts = false;  // pad texts to the tokenizer's context, not just to the longest text of the batch
  // precomputed features to use instead of the images (data.features); null: images are decoded
  std::shared_ptr<const FeatureFolder> features;
  // precomputed vectors of texts, which batches have in addition to the ids; null: none
  std::shared_ptr<const FeatureFolder> text_features;
  // stored embeddings of teachers for the views that need them (ViewNeeds::taught); the crops of the images are then those for which
  // embeddings are stored, one after the other from epoch to epoch; null: batches have none
  std::shared_ptr<const TaughtFolder> teachers;
  std::int64_t batches_of_run = 0;  // number of batches in the run; if it is 0 (unknown), `resolution` is ignored
  // error messages that suggest a larger max_bad_share write this text in front of the suggested value
  std::string share_setting = "data.loader.max_bad_share: ";
  std::shared_ptr<ReportedSamples> reported;              // the skipped samples that the log has already reported; null: none
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
  /// Waits until the next batch is ready and returns its segment number (see segment()). Throws like next(). Changes nothing else that this
  /// class returns, except the time in statistics().
  std::int64_t next_segment();
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

}  // namespace tessera
